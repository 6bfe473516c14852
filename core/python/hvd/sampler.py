# SPDX-License-Identifier: Apache-2.0
"""ElasticSampler: distributes the samples of an epoch over a changing number of ranks. Needs no framework.

hvd.torch.elastic.ElasticSampler is this class as one of torch's samplers. At commits the
state object that holds it (_state.py) calls the methods under "between the ranks".
"""
import copy
import random

from ._partition import Partition, positions
from .world import rank, size


def _copy(partition):
    """A copy with counts of its own; the constant parts are shared."""
    partition = copy.copy(partition)
    partition.counts = list(partition.counts)
    return partition


class ElasticSampler:
    """Distributes a dataset over the ranks, and again over the remaining ranks when the world changes.

    Put it into the state, call record_batch() after each step, and set_epoch() at the end of each epoch:

        state = hvd.elastic.TorchState(model, optimizer, epoch=0, sampler=sampler)
        loader = torch.utils.data.DataLoader(dataset, batch_size=32, sampler=sampler)
        while state.epoch < epochs:
            for index, batch in enumerate(sampler.whole_epoch(loader)):
                ... optimizer.step()
                sampler.record_batch(index, 32)
                state.check_host_updates()
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    Which samples count as used. At each commit (commit() or check_host_updates()) the ranks sum up what
    each of them has recorded. A rank whose figures are in that sum has finished every operation before the
    commit, so its samples are in every gradient since the last commit: they count as used. The sum has the
    same bits on all survivors, so all of them agree. When a rank is lost, the samples that it used after
    the last commit it reached count as unused, although some results may contain their gradient. They go to
    the survivors, together with the samples that it had not reached. By this rule every sample of an epoch
    is used exactly once, whichever ranks are lost, join or leave. To repeat little work, commit often:
    check_host_updates() takes the time of two small allreduces. A rank that is asked to leave does so at a
    commit and loses nothing.

    Samples that a data loader has prefetched stay with its rank, so that no loading is wasted. As in
    Horovod, all ranks get sequences of the same length: if the samples do not divide evenly, sequences are
    padded with samples that other ranks use, too (at most size() - 1 for each partition; more for a rank
    that joins in the last steps of an epoch). Pads do not count as uses.

    A loader that has reached the end of its epoch cannot continue when a rank is lost in the very last
    steps. whole_epoch(loader) iterates it again until all samples are used. A plain `for batch in loader`
    ends; the remaining samples then come first in the next epoch.

    Call set_epoch() at the end of an epoch, with the number of the next one. With the number of the current
    epoch it does nothing, so that it may also be called at the beginning of the loop.

    Args:
        dataset: anything with a constant length.
        shuffle, seed: the order of an epoch is computed from seed and epoch, and is the same on all ranks.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self._again = False  # data loaders are iterated again (whole_epoch)
        self._previous = None  # the last epoch, until the next commit: partition, what this rank used, order
        self._start(self._shuffled(), 0)

    def _shuffled(self):
        order = positions(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        return order

    def _start(self, order, before):
        """Begins with these samples; `before` samples of the epoch were used already."""
        self._order, self._before = order, before
        self._take(Partition(positions(range(len(order))), size()), rank())
        self.rewind()

    def _take(self, partition, own):
        """Uses a partition, in which this rank has the number own."""
        self._partition, self._own = partition, own
        self._sequence = partition.sequence(own)
        self._recorded, self._base = 0, 0
        self._drawn = len(partition.prefetched[own])

    # ---- what the user calls --------------------------------------------------------------------

    def __iter__(self):
        self.rewind()
        self._base, mine = self._recorded, self._pass
        return self._draw(mine)

    def _draw(self, mine):
        while self._pass is mine:
            if self._drawn == len(self._sequence):
                self._ended = True
                return
            position = self._sequence[self._drawn]
            self._drawn += 1
            yield self._order[~position if position < 0 else position]

    def __len__(self):
        return len(self._sequence) - self._base

    def record_batch(self, batch_idx, batch_size):
        """Records that the next batch_size samples which the iterator gave out have been used (fewer at
        the end). batch_idx is ignored; it is there for programs written for Horovod."""
        self._recorded = min(self._recorded + batch_size, self._drawn)

    def record_indices(self, indices):
        """Like record_batch, but names the samples: indices are the next ones that the iterator gave out,
        in any order. Raises ValueError if they are others."""
        indices = list(indices)
        expected = self._sequence[self._recorded : self._recorded + len(indices)]
        if sorted(self._order[~p if p < 0 else p] for p in expected) != sorted(indices):
            raise ValueError("record_indices: these are not the next samples that the sampler gave out")
        self.record_batch(0, len(indices))

    def set_epoch(self, epoch):
        """Begins another epoch. Call it on all ranks, and only at the end of an epoch."""
        over = self._recorded == len(self._sequence) and len(self.dataset) > 0
        if epoch == self.epoch and not over:
            return
        previous = self._partition, self._recorded, self._order
        carried = positions(self._order[p] for p in self._partition.later)
        self.epoch = epoch
        self._start(carried + self._shuffled(), -len(carried))
        self._previous = previous

    def whole_epoch(self, loader):
        """Yields the batches of a data loader that uses this sampler, until every sample of the epoch is
        used. Call commit() or check_host_updates() after each batch."""
        self._again = True
        while True:
            count = 0
            for batch in loader:
                count += 1
                yield batch
            if not count or (self._recorded == len(self._sequence) and not self._partition.later):
                return

    def left_over(self):
        """How many samples are left for the next epoch, or for another pass of whole_epoch()."""
        return len(self._partition.later)

    @property
    def processed_num(self):
        """How many samples of the epoch all ranks together have used, if every rank has recorded as much as this one."""
        return self._before + len(self._order) - len(self._unused())

    def _unused(self):
        """The positions of samples that are not used, if every rank has recorded as much as this one."""
        partition = copy.copy(self._partition)
        partition.counts = [self._recorded] * partition.size
        return partition.unused()

    def state_dict(self):
        """The progress in the epoch as a dict, for a checkpoint. It assumes that every rank has recorded
        as much as this one."""
        unused = self._unused()
        return {
            "epoch": self.epoch,
            "processed_num": self._before + len(self._order) - len(unused),
            "remaining": [self._order[p] for p in unused],
        }

    def load_state_dict(self, state_dict):
        """Continues from a state_dict(), also with another number of ranks. Accepts dicts of Horovod's
        sampler, too.
        """
        self.epoch, self._previous = state_dict["epoch"], None
        done = state_dict.get("processed_num", 0)
        if "remaining" in state_dict:
            order = positions(state_dict["remaining"])
        elif "processed_indices" in state_dict:
            used = set(state_dict["processed_indices"])
            order, done = positions(i for i in self._shuffled() if i not in used), len(used)
        else:
            order = self._shuffled()[done:]
        self._start(order, done)

    def reset(self):
        """Partitions the unused samples again for the current world. Samples that were given out but not
        recorded count as unused."""
        more = self._lost(range(self._previous[0].size)) if self._previous else positions()
        self._take(Partition(self._partition.unused() + more, size()), rank())
        self.rewind()

    # ---- between the ranks ----------------------------------------------------------------------

    def report(self):
        """How much this rank has used of the last epoch (if it ended after the last commit) and of this
        one. Both are plus 1, because 0 stands for a rank that did not reach the commit."""
        return (self._previous[1] if self._previous else 0) + 1, self._recorded + 1

    def agree(self, reports):
        """Takes the report() of every rank, (0, 0) for ranks that did not reach the commit."""
        for number, (previous, current) in enumerate(reports):
            if previous and current:
                self._partition.counts[number] = current - 1
                if self._previous:
                    self._previous[0].counts[number] = previous - 1

    def unchanged(self):
        """A commit that did not change the world."""
        self._previous = None
        partition = self._partition
        if self._again and partition.later and partition.used_up():
            self._take(Partition(partition.later, partition.size), self._own)

    def rewind(self):
        """Ends the current iterator. The next one gives out again what was not recorded."""
        self._drawn, self._ended, self._pass = self._recorded, False, object()

    def progress(self):
        """What the other ranks need for a new partition: this rank's number in the old one, how many
        samples were given out, and whether the iterator has ended."""
        return self._own, self._drawn, int(self._ended)

    def _lost(self, ranks):
        """Adds the samples that these ranks missed in the last epoch to this one; returns their positions."""
        partition, _, order = self._previous
        lost = positions(order[p] for p in partition.missed_by(ranks))
        more = positions(range(len(self._order), len(self._order) + len(lost)))
        self._order, self._before = self._order + lost, self._before - len(lost)
        self._previous = None
        return more

    def repartition(self, new_rank, new_size, progress):
        """Partitions the unused samples for a new world. progress: {new rank: progress()} of the ranks
        that were in the old one."""
        more = positions()
        if self._previous:
            survivors = {number for number, _, _ in progress.values()}
            more = self._lost(n for n in range(self._previous[0].size) if n not in survivors)
        self._take(self._partition.repartition(new_size, progress, more, self._again), new_rank)

    def shared(self):
        """What is the same on all ranks: for a joiner, and for restore()."""
        previous = self._previous and (_copy(self._previous[0]),) + self._previous[1:]
        return self.epoch, self._order, self._before, _copy(self._partition), previous, self._again

    def adopt(self, shared, own):
        """Takes over shared(), of another rank or of an earlier moment. own: this rank's number in its
        partition.
        """
        self.epoch, self._order, self._before, partition, previous, self._again = shared
        self._previous = previous and (_copy(previous[0]),) + previous[1:]
        self._take(_copy(partition), own)
        if own < partition.size:
            self._recorded = partition.counts[own]
        self.rewind()
