# SPDX-License-Identifier: Apache-2.0
"""ElasticSampler: shares the samples of an epoch out to ranks that come and go. Needs no framework.

hvd.torch.elastic.ElasticSampler is this class as one of torch's samplers. The state object that holds it
(elastic.py) calls what stands under "between the ranks", at commits.
"""
import copy
import random

from ._ledger import Ledger, positions
from .world import rank, size


def _copy(ledger):
    """One whose counts are its own."""
    ledger = copy.copy(ledger)
    ledger.counts = list(ledger.counts)
    return ledger


class ElasticSampler:
    """Shares a dataset out to the ranks, and again among those that are left when the world changes.

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

    Which samples count. A *contributor* is a rank that reaches a commit (commit() or
    check_host_updates()): one whose word about what it has recorded is in the sum that the ranks form
    there. That sum has the same bits on all survivors, so all agree. A contributor has finished every
    operation before the commit, so its samples are in every gradient since the commit before, and they
    count as used. What a rank has used since the last commit that it reached, when it dies, counts as
    not used, although its gradient may be in some results, and is dealt to the survivors; so are the
    samples it had not come to. By this rule every sample of an epoch is used exactly once, whoever dies,
    comes or leaves. To repeat little, commit often: check_host_updates() takes the time of two small
    allreduces, and a rank that is asked to leave does so at a commit and loses nothing.

    What a data loader has taken ahead stays with its rank: it keeps its order and wastes no work. All
    ranks get sequences of the same length, as Horovod gives them: what does not divide evenly is padded
    with samples that other ranks use too (at most size() - 1 a deal; more for a rank that joins in the
    last steps of an epoch). These repeats are beside the count.

    A loader that has been told that the epoch is over cannot go on when a rank dies in the very last
    steps. whole_epoch(loader) asks it again until all is used. A plain `for batch in loader` ends; then
    what the dead rank left comes first thing with the next epoch.

    Call set_epoch() with the number of the next epoch at the end of one. With the number of the epoch
    under way it does nothing, so that it may stand at the beginning of the loop as well.

    dataset: whatever has a length, which does not change. shuffle, seed: the order of an epoch comes from
    seed and epoch; the same on all ranks.
    """

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = 0
        self._again = False  # data loaders are asked again (whole_epoch)
        self._former = None  # of the epoch before, until a commit: ledger, what this rank used, order
        self._start(self._shuffled(), 0)

    def _shuffled(self):
        order = positions(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        return order

    def _start(self, order, before):
        """Begins with these samples; `before` of the epoch were used already."""
        self._order, self._before = order, before
        self._take(Ledger(positions(range(len(order))), size()), rank())
        self.drop_hand()

    def _take(self, ledger, seat):
        self._ledger, self._seat = ledger, seat
        self._sequence = ledger.sequence(seat)
        self._recorded, self._base = 0, 0
        self._drawn = len(ledger.ahead[seat])

    # ---- what the user calls --------------------------------------------------------------------

    def __iter__(self):
        self.drop_hand()
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
        """The oldest samples that were handed out and not recorded, batch_size of them or as many as
        there are, have been used. batch_idx: not needed; Horovod has it."""
        self._recorded = min(self._recorded + batch_size, self._drawn)

    def record_indices(self, indices):
        """As record_batch, by the indices: those that were handed out next, in any order."""
        indices = list(indices)
        expected = self._sequence[self._recorded : self._recorded + len(indices)]
        if sorted(self._order[~p if p < 0 else p] for p in expected) != sorted(indices):
            raise ValueError("record_indices: these are not the samples that were handed out next")
        self.record_batch(0, len(indices))

    def set_epoch(self, epoch):
        """Ends the epoch and begins another one. Not in the middle of one, on all ranks alike."""
        over = self._recorded > 0 and self._recorded == len(self._sequence)
        if epoch == self.epoch and not over:
            return
        former = self._ledger, self._recorded, self._order
        carried = positions(self._order[p] for p in self._ledger.later)
        self.epoch = epoch
        self._start(carried + self._shuffled(), -len(carried))
        self._former = former

    def whole_epoch(self, loader):
        """The batches of a data loader that uses this sampler, until every sample of the epoch is used.
        Call commit() or check_host_updates() after each of them."""
        self._again = True
        while True:
            count = 0
            for batch in loader:
                count += 1
                yield batch
            if not count or (self._recorded == len(self._sequence) and not self._ledger.later):
                return

    def left_over(self):
        """How many samples wait for the next epoch, or for another pass of whole_epoch()."""
        return len(self._ledger.later)

    @property
    def processed_num(self):
        """How many samples of the epoch all ranks together have used, as far as is agreed."""
        return self._before + len(self._order) - len(self._ledger.unused())

    def state_dict(self):
        """The state of the epoch as of now, for a checkpoint. Every rank is taken to be as far as this
        one."""
        ledger = copy.copy(self._ledger)
        ledger.counts = [self._recorded] * ledger.size
        unused = ledger.unused()
        return {
            "epoch": self.epoch,
            "processed_num": self._before + len(self._order) - len(unused),
            "remaining": [self._order[p] for p in unused],
        }

    def load_state_dict(self, state_dict):
        """Goes on from state_dict(), in whatever world. Horovod's own dicts will do too."""
        self.epoch, self._former = state_dict["epoch"], None
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
        """Deals what is not used anew, for the world as it is now. What was handed out is forgotten."""
        more = self._lost(range(self._former[0].size)) if self._former else positions()
        self._take(Ledger(self._ledger.unused() + more, size()), rank())
        self.drop_hand()

    # ---- between the ranks ----------------------------------------------------------------------

    def tell(self):
        """How much this rank has used, of the epoch before (when it ended since the last commit) and
        of this one; plus 1, because a rank that does not reach the commit has 0 here."""
        return (self._former[1] if self._former else 0) + 1, self._recorded + 1

    def agree(self, told):
        """told: tell() of every rank, (0, 0) of those that did not reach the commit."""
        for seat, (former, present) in enumerate(told):
            if former and present:
                self._ledger.counts[seat] = present - 1
                if self._former:
                    self._former[0].counts[seat] = former - 1

    def stay(self):
        """The world is as it was."""
        self._former = None
        ledger = self._ledger
        if self._again and ledger.later and ledger.used_up():
            self._take(Ledger(ledger.later, ledger.size), self._seat)

    def drop_hand(self):
        """What was handed out and not recorded will be handed out again, by another iterator."""
        self._drawn, self._ended, self._pass = self._recorded, False, object()

    def hand(self):
        """What the others have to know to deal again: place here, how much was handed out, whether
        that was told to be all."""
        return self._seat, self._drawn, int(self._ended)

    def _lost(self, seats):
        """What these seats did not get to in the epoch before, as positions of this one."""
        ledger, _, order = self._former
        lost = positions(order[p] for p in ledger.left_by(seats))
        more = positions(range(len(self._order), len(self._order) + len(lost)))
        self._order, self._before = self._order + lost, self._before - len(lost)
        self._former = None
        return more

    def move(self, new_rank, new_size, hands):
        """The world is another one. hands: {new rank: hand()} of the ranks that stay."""
        more = positions()
        if self._former:
            stay = {seat for seat, _, _ in hands.values()}
            more = self._lost(s for s in range(self._former[0].size) if s not in stay)
        self._take(self._ledger.redeal(new_size, hands, more, self._again), new_rank)

    def shared(self):
        """What is the same on all ranks: for one that joins, and to come back to."""
        former = self._former and (_copy(self._former[0]),) + self._former[1:]
        return self.epoch, self._order, self._before, _copy(self._ledger), former, self._again

    def adopt(self, shared, seat):
        """Takes over a shared(), of another rank or of an earlier moment."""
        self.epoch, self._order, self._before, ledger, former, self._again = shared
        self._former = former and (_copy(former[0]),) + former[1:]
        self._take(_copy(ledger), seat)
        if seat < ledger.size:
            self._recorded = ledger.counts[seat]
        self.drop_hand()
