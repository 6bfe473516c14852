# SPDX-License-Identifier: Apache-2.0
"""Which rank uses which samples of an epoch: one partition of them. Pure; sampler.py keeps one.

A sample is its *position* in the order of the epoch. A partition gives every rank of an epoch of the job a
sequence of positions. All sequences have the same length, so that all ranks make the same number of steps.
If the samples do not divide evenly the sequences are padded: a *pad* is a position that another rank uses
too. It is written as ~position and does not count as a use. A rank uses its sequence from the front;
`counts` holds how many entries of each sequence have been used, as all ranks have agreed.

When the world changes, the unused samples are partitioned again. A surviving rank keeps what its data
loader has already prefetched: those samples come first in its new sequence.
"""
from array import array
from bisect import bisect_left


def positions(values=()):
    """An array of positions."""
    return array("q", values)


class Partition:
    """One partition; the same on every rank. Only `counts` changes after its creation."""

    def __init__(self, pool, size, prefetched=None, closed=False):
        """Assigns the positions of pool to `size` ranks. prefetched: for each rank, what its data loader
        has already. closed: the ranks make no more steps than the longest of these needs; the positions
        that do not fit are in `later`."""
        self.size = size
        self.prefetched = prefetched or [positions()] * size
        fetched = [len(items) for items in self.prefetched]
        longest, total = max(fetched), sum(fetched)
        self.length = longest if closed else max(longest, -(-(len(pool) + total) // size))
        room = self.length * size - total
        self.later = pool[room:]
        self.assigned = pool[:room]
        self._pad(room - len(self.assigned))
        # Ranks that prefetched less are first filled up to the longest; then positions go round robin.
        self._extra = [longest - count for count in fetched]
        self.counts = [0] * size

    def _pad(self, missing):
        """Pads with positions from the front of what is assigned."""
        if missing <= 0:
            return
        source = self.assigned or positions(x for items in self.prefetched for x in items)
        pads = [x if x < 0 else ~x for x in source[:missing]]
        self.assigned = self.assigned + positions((pads * -(-missing // len(pads)))[:missing])

    def sequence(self, rank):
        """The positions that a rank uses, in order; pads are negative."""
        begin = sum(self._extra[:rank])
        end = begin + self._extra[rank]
        turns = sum(self._extra)
        return self.prefetched[rank] + self.assigned[begin:end] + self.assigned[turns + rank :: self.size]

    def used_up(self):
        """Whether every rank has used all of its sequence."""
        return all(count == self.length for count in self.counts)

    def unused(self, drawn=None):
        """The positions that no rank has used, in order. drawn: {rank: how many entries of its sequence its
        data loader has taken}; for these ranks it replaces `counts`."""
        pool = list(self.later)
        for rank in range(self.size):
            begin = self.counts[rank] if drawn is None else drawn.get(rank, self.counts[rank])
            pool.extend(self.sequence(rank)[begin:])
        pool.sort()
        return positions(pool[bisect_left(pool, 0) :])

    def missed_by(self, ranks):
        """The positions that these ranks lack to be as far as the rank that is furthest."""
        furthest = max(self.counts)
        pool = [x for r in ranks for x in self.sequence(r)[self.counts[r] : furthest] if x >= 0]
        return positions(sorted(pool))

    def repartition(self, size, progress, more=(), again=False):
        """The partition for a world of `size` ranks. progress: {new rank: (rank in this partition, how many
        entries its data loader has taken, whether the loader was told that the epoch is over)}. more:
        positions to add. again: loaders that were told so will be iterated again."""
        prefetched = [positions()] * size
        for new_rank, (rank, drawn, _) in progress.items():
            prefetched[new_rank] = self.sequence(rank)[self.counts[rank] : drawn]
        closed = any(ended for _, _, ended in progress.values())
        if again and not any(prefetched):
            closed = False
        unused = self.unused({rank: drawn for rank, drawn, _ in progress.values()})
        return Partition(unused + positions(more), size, prefetched, closed)
