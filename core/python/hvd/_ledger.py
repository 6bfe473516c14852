# SPDX-License-Identifier: Apache-2.0
"""Who uses which samples of an epoch: one deal of them to the ranks. Pure; sampler.py keeps one.

A sample is its *position* in the order of the epoch. A deal gives every *seat* (a rank of the world in
which it was made) a sequence of them, all of the same length, so that every rank makes the same number
of steps. What does not divide evenly is padded: a *pad* is a position that another seat uses too, written
as ~position, and counts for nothing. A seat uses its sequence from the front; `counts` says how much of
each sequence is known, on every rank alike, to have been used.

When the world changes the rest is dealt again. What a rank that stays has already handed out to its data
loader, which works ahead, stays with that rank: it comes first in its new sequence.
"""
from array import array
from bisect import bisect_left


def positions(values=()):
    """An array of positions."""
    return array("q", values)


class Ledger:
    """One deal. Everything but `counts` stays as it is; it is the same on every rank."""

    def __init__(self, pool, size, ahead=None, closed=False):
        """Deals the positions of pool to `size` seats. ahead: what each seat has in hand already.
        closed: the seats take no more steps than the longest of these needs; the rest waits in `later`."""
        self.size = size
        self.ahead = ahead or [positions()] * size
        in_hand = [len(items) for items in self.ahead]
        longest, total = max(in_hand), sum(in_hand)
        self.length = longest if closed else max(longest, -(-(len(pool) + total) // size))
        room = self.length * size - total
        self.later = pool[room:]
        self.dealt = pool[:room]
        self._pad(room - len(self.dealt))
        # Whoever has less in hand than others first gets as much; then they take turns.
        self._extra = [longest - count for count in in_hand]
        self.counts = [0] * size

    def _pad(self, missing):
        """Repeats what there is, from the front."""
        if missing <= 0:
            return
        source = self.dealt or positions(x for items in self.ahead for x in items)
        pads = [x if x < 0 else ~x for x in source[:missing]]
        self.dealt = self.dealt + positions((pads * -(-missing // len(pads)))[:missing])

    def sequence(self, seat):
        """What a seat uses, from first to last; pads are negative."""
        begin = sum(self._extra[:seat])
        end = begin + self._extra[seat]
        turns = sum(self._extra)
        return self.ahead[seat] + self.dealt[begin:end] + self.dealt[turns + seat :: self.size]

    def used_up(self):
        """Every seat has used all of its sequence."""
        return all(count == self.length for count in self.counts)

    def unused(self, kept=None):
        """The positions that nobody has used, in order. kept: {seat: how much of its sequence is out of
        the question}, in place of `counts`."""
        pool = list(self.later)
        for seat in range(self.size):
            begin = self.counts[seat] if kept is None else kept.get(seat, self.counts[seat])
            pool.extend(self.sequence(seat)[begin:])
        pool.sort()
        return positions(pool[bisect_left(pool, 0) :])

    def left_by(self, seats):
        """What these seats would have used to get as far as the others did, and did not."""
        furthest = max(self.counts)
        pool = [x for s in seats for x in self.sequence(s)[self.counts[s] : furthest] if x >= 0]
        return positions(sorted(pool))

    def redeal(self, size, hands, more=(), again=False):
        """The deal for a world of `size` ranks. hands: {new rank: (seat here, how much of its sequence
        it has handed out, whether its data loader has been told that this was all)}. more: positions
        on top. again: data loaders that were told so will ask again."""
        kept = {seat: drawn for seat, drawn, _ in hands.values()}
        ahead = [positions()] * size
        for rank, (seat, drawn, _) in hands.items():
            ahead[rank] = self.sequence(seat)[self.counts[seat] : drawn]
        closed = any(ended for _, _, ended in hands.values())
        if again and not any(ahead):
            closed = False
        return Ledger(self.unused(kept) + positions(more), size, ahead, closed)
