#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer that is split over ranks in three ways at a time: data, tensor and pipeline parallel.

    hvdrun -np 8 python3 examples/transformer_torch.py                  2 x 2 x 2
    python3 examples/transformer_torch.py                               the same training in one process
    hvdrun -np 4 python3 examples/transformer_torch.py --tensor 4       one copy of the model, split by heads
    hvdrun -np 4 python3 examples/transformer_torch.py --pipeline 4 --microbatches 8
                                                                        one copy, a block of the model on each rank
    hvdrun --keep-places -np 8 --min-np 4 python3 examples/transformer_torch.py
                                                                        the same 2 x 2 x 2, and ranks may be lost

The job has ranks / (tensor * pipeline) copies of the model. The model learns to continue rows of numbers such as
3, 6, 1, 4, ... (modulo 8), each with a first number and a difference of its own. It trains on the CPU.

Every split prints the losses of one process, but for rounding. The example computes in float64 to show that: training
amplifies rounding, and in float32 the losses of two splits drift apart.

When a rank is lost in a job that keeps places, its copy of the model lacks a part and waits. The step is dropped. The other
copies go on at the same step, with all rows shared among them. A new rank takes the place, and each rank of the copy takes
parameters, optimizer state and losses from the rank with the same part in another copy. So the losses are still those
of one process. If a part is lost in all copies, all begin anew at the first step.
"""
import argparse
import sys
import time

import torch
import torch.nn.functional as F

import hvd.torch as hvd

NUMBERS, LENGTH = 8, 8  # the numbers of a row are 0 to NUMBERS - 1; the model sees LENGTH of them
WIDTH, HEADS, BLOCKS = 16, 4, 4
BATCH = 24  # rows of a step, of all copies of the model together


# ---- which part of the work this rank has --------------------------------------------------------


def fix(process_set):
    try:
        process_set.fix()
    except hvd.HvdError as error:  # only in a job that keeps places a rank can fix a set of other ranks
        sys.exit(f"{error}: start an elastic job with hvdrun --keep-places")


class Grid:
    """This rank's coordinates in the grid of ranks, and the sets of ranks that it works with.

    Tensor parallel ranks are neighbours, because they exchange the most data: they should be on one host. Copies are the
    furthest apart, so that the loss of a host concerns few of them.

        8 ranks, 2 x 2 x 2        stage 0                stage 1
        copy 0                    ranks 0 and 1          ranks 2 and 3
        copy 1                    ranks 4 and 5          ranks 6 and 7
    """

    def __init__(self, tensor, pipeline, joins):
        """joins: this rank has joined for a rank that was lost, and the sets exist."""
        self.parts, self.stages = tensor, pipeline
        self.copy, rest = divmod(hvd.place(), tensor * pipeline)
        self.stage, self.part = divmod(rest, tensor)
        self.is_first, self.is_last = self.stage == 0, self.stage == pipeline - 1
        sets = self.find_sets() if joins else self.make_sets(hvd.size() // (tensor * pipeline))
        self.tensor_set = sets[tuple(self.number(self.copy, part, self.stage) for part in range(tensor))]
        self.pipeline_set = sets[tuple(self.number(self.copy, self.part, stage) for stage in range(pipeline))]
        self.data_set = sets[self.data_places(self.part, self.stage)]
        self.microbatch = 0  # the number of the one that goes forward now

    def number(self, copy, part, stage):
        """The place of these coordinates. In the beginning it is the rank. A rank keeps its place when others are lost."""
        return (copy * self.stages + stage) * self.parts + part

    def copy_sets(self, copy):
        """The places of the tensor and pipeline sets of a copy. If the model is split in one way only, some of them are
        equal: they are one set."""
        parts, stages = range(self.parts), range(self.stages)
        sets = [tuple(self.number(copy, part, stage) for part in parts) for stage in stages]
        sets += [tuple(self.number(copy, part, stage) for stage in stages) for part in parts]
        return list(dict.fromkeys(sets))

    def data_places(self, part, stage):
        return tuple(self.number(copy, part, stage) for copy in range(self.copies))

    def sets_to_add(self):
        """The places of all sets that hvd.add_process_set() makes, in this order: first those of each copy. It makes no set
        of all ranks."""
        sets = [places for copy in range(self.copies) for places in self.copy_sets(copy)]
        sets += [self.data_places(part, stage) for stage in range(self.stages) for part in range(self.parts)]
        return [places for places in dict.fromkeys(sets) if len(places) < self.size()]

    def size(self):
        """The number of places of all copies."""
        return self.copies * self.stages * self.parts

    def make_sets(self, copies):
        """Makes the sets at the start of the job. Returns {places: set}."""
        self.copies = copies
        sets = {places: hvd.add_process_set(places) for places in self.sets_to_add()}
        # A copy cannot do without any of its ranks. All ranks know all of these sets, and that they are fixed, also when
        # all ranks of such a set are lost. Data sets can do with fewer ranks.
        for copy in range(copies if hvd.elastic.world().elastic else 0):
            for places in self.copy_sets(copy):
                fix(sets[places])
        # The set of the ranks that train. The world cannot be used for it: while a copy lacks a rank, its operations fail.
        self.all_set = hvd.form_process_set(range(self.size()), "all")
        return {tuple(range(self.size())): self.all_set, **sets}

    def find_sets(self):
        """Finds the sets that other ranks have made. Returns {places: set}."""
        self.all_set = hvd.find_process_set("all")
        known = [process_set for process_set in hvd.known_process_sets() if process_set is not self.all_set]
        self.copies = 1
        while len(self.sets_to_add()) < len(known):
            self.copies += 1
        return {tuple(range(self.size())): self.all_set, **dict(zip(self.sets_to_add(), known))}

    def is_whole(self):
        """Whether no rank of this copy is missing, as of the last commit. The same on all of its ranks."""
        first = self.number(self.copy, 0, 0)
        return set(range(first, first + self.parts * self.stages)) <= set(hvd.places())

    def is_complete(self):
        """The same of all copies."""
        return self.all_set.size() == self.size()

    def find_neighbours(self):
        """The ranks of the stages before and after this one. They change when ranks are lost, and when they join."""
        # Each part of a stage sends to the same part of the next stage.
        line = self.pipeline_set.ranks
        self.before = None if self.is_first else line[self.stage - 1]
        self.after = None if self.is_last else line[self.stage + 1]


# ---- tensor parallel -----------------------------------------------------------------------------
# Each rank of a tensor set has some of the attention heads and some of the hidden units of the MLP. Activations
# between the blocks are the same on all of its ranks, and so are the parameters that are not split (norms,
# embeddings, biases of sums) with their gradients.
#
# hvd.allreduce() is differentiable itself. But its backward computes the gradient of the sum of all ranks' losses. The
# ranks of a tensor set compute one loss, each of them the same value, so that the sum would count it several times. The
# two functions below count it once.
#
# Each operation of a step has a name of its own, also in each microbatch, and has the same name in every step. So hvd
# recognizes that steps are equal, and the ranks stop negotiating (README, FREEZE_AFTER).


class EnterSplit(torch.autograd.Function):
    """Before layers of which each rank has a part: forward changes nothing, backward adds the parts' gradients."""

    @staticmethod
    def forward(ctx, x, name, grid):
        ctx.name, ctx.tensor_set = f"{name}.{grid.microbatch}", grid.tensor_set
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return hvd.allreduce(gradient, name=ctx.name, op=hvd.Sum, process_set=ctx.tensor_set), None, None


class LeaveSplit(torch.autograd.Function):
    """After layers of which each rank has a part: forward adds the parts' results, backward changes nothing."""

    @staticmethod
    def forward(ctx, x, name, grid):
        return hvd.allreduce(x, name=f"{name}.{grid.microbatch}", op=hvd.Sum, process_set=grid.tensor_set)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None, None


def own_part(parameter, dim, grid):
    """This rank's part of a parameter."""
    return torch.nn.Parameter(parameter.detach().chunk(grid.parts, dim)[grid.part].clone())


class ColumnLinear(torch.nn.Linear):
    """A linear layer of which each rank computes some of the outputs."""

    def __init__(self, inputs, outputs, grid):
        super().__init__(inputs, outputs)  # the whole layer, the same on every rank, so that any split starts alike
        self.weight = own_part(self.weight, 0, grid)
        self.bias = own_part(self.bias, 0, grid)


class RowLinear(torch.nn.Linear):
    """A linear layer of which each rank has some of the inputs. It ends the part of the model that is split."""

    def __init__(self, inputs, outputs, name, grid):
        super().__init__(inputs, outputs)
        self.weight = own_part(self.weight, 1, grid)
        self.name, self.grid = name, grid

    def forward(self, x):
        # The bias is added after the sum, so once.
        return LeaveSplit.apply(F.linear(x, self.weight), self.name, self.grid) + self.bias


class Attention(torch.nn.Module):
    """Causal attention. Outputs of ColumnLinear are in the order of heads, so a part of them is whole heads."""

    def __init__(self, name, grid):
        super().__init__()
        self.name, self.grid, self.heads = name, grid, HEADS // grid.parts
        self.query, self.key, self.value = (ColumnLinear(WIDTH, WIDTH, grid) for _ in range(3))
        self.output = RowLinear(WIDTH, WIDTH, f"{name}.sum", grid)
        self.register_buffer("future", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, x):
        x = EnterSplit.apply(x, f"{self.name}.gradient", self.grid)
        query, key, value = (
            layer(x).unflatten(2, (self.heads, WIDTH // HEADS)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        weights = scores.masked_fill(self.future, float("-inf")).softmax(3)
        return self.output((weights @ value).transpose(1, 2).flatten(2))


class Perceptron(torch.nn.Module):
    """Two layers: the first one is split by its outputs, the second one by its inputs."""

    def __init__(self, name, grid):
        super().__init__()
        self.name, self.grid = name, grid
        self.inner = ColumnLinear(WIDTH, 4 * WIDTH, grid)
        self.outer = RowLinear(4 * WIDTH, WIDTH, f"{name}.sum", grid)

    def forward(self, x):
        x = EnterSplit.apply(x, f"{self.name}.gradient", self.grid)
        return self.outer(F.gelu(self.inner(x)))


class Block(torch.nn.Module):
    def __init__(self, name, grid):
        super().__init__()
        self.norm1, self.attention = torch.nn.LayerNorm(WIDTH), Attention(f"{name}.attention", grid)
        self.norm2, self.perceptron = torch.nn.LayerNorm(WIDTH), Perceptron(f"{name}.perceptron", grid)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.perceptron(self.norm2(x))


class Embedding(torch.nn.Module):
    """The start of the model, on the first stage: from numbers to vectors."""

    def __init__(self):
        super().__init__()
        self.number, self.position = torch.nn.Embedding(NUMBERS, WIDTH), torch.nn.Embedding(LENGTH, WIDTH)

    def forward(self, rows):
        return self.number(rows) + self.position.weight


def make_stage(grid):
    """The layers of this rank's stage. Each layer is drawn from a seed of its own, so that its first weights do not
    depend on the layers that this rank makes before it."""
    share = BLOCKS // grid.stages
    layers = []
    if grid.is_first:
        torch.manual_seed(1000)
        layers.append(Embedding())
    for number in range(grid.stage * share, (grid.stage + 1) * share):
        torch.manual_seed(number)
        layers.append(Block(f"block{number}", grid))
    if grid.is_last:
        torch.manual_seed(1001)
        layers += [torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, NUMBERS)]
    return torch.nn.Sequential(*layers)


# ---- pipeline parallel ---------------------------------------------------------------------------


class Arriving:
    """A step's activations or gradients from another stage, as messages. Without such a stage there are none.

    All receives of a step are submitted at its beginning, so that messages arrive while this rank computes. The tag is
    the number of the microbatch. Each message has a tensor of its own: autograd would refuse parts of one tensor,
    because a message that arrives changes it after other parts were used."""

    def __init__(self, source, shape, count, grid):
        self.tensors = [torch.empty(*shape, WIDTH) for _ in range(count)] if source is not None else []
        self.messages = [
            hvd.irecv(tensor, source, tag=tag, process_set=grid.pipeline_set)
            for tag, tensor in enumerate(self.tensors)
        ]

    def wait(self, tag):
        self.messages[tag].wait()
        return self.tensors[tag]


def compute_gradients(stage, optimizer, rows, grid):
    """Forward and backward of a step with this copy's rows, a tensor of microbatches. First all microbatches go forward
    through the stages, then all go backward (GPipe's schedule). Returns the mean loss of this copy on the last stage, 0 on
    others."""
    inputs, wanted = rows[:, :, :-1], rows[:, :, 1:]
    count = len(inputs)
    activations = Arriving(grid.before, inputs.shape[1:], count, grid)
    gradients = Arriving(grid.after, inputs.shape[1:], count, grid)
    entered, results, sent = [], [], []

    def send(tensor, rank, tag):
        sent.append(hvd.isend(tensor, rank, tag=tag, process_set=grid.pipeline_set))

    optimizer.zero_grad()
    for tag in range(count):
        grid.microbatch = tag
        x = inputs[tag] if grid.is_first else activations.wait(tag).requires_grad_()
        y = stage(x)
        if grid.is_last:
            y = F.cross_entropy(y.flatten(0, 1), wanted[tag].flatten()) / count
        else:
            send(y, grid.after, tag)
        entered.append(x)
        results.append(y)
    for tag in range(count):
        # backward() adds to the gradients of the microbatches before. During the last one the optimizer's hooks send
        # each gradient to the other copies as soon as it is complete.
        results[tag].backward(None if grid.is_last else gradients.wait(tag))
        if not grid.is_first:
            send(entered[tag].grad, grid.before, tag)
    for message in sent:
        message.wait()
    return float(sum(results)) if grid.is_last else 0.0


# ---- data parallel -------------------------------------------------------------------------------


def make_rows(step, microbatches, grid):
    """This copy's share of a step's rows, microbatches x rows x (LENGTH + 1) numbers. Every rank makes all rows: stages
    and parts of one copy need the same. While a copy lacks a rank the others share its rows."""
    random = torch.Generator().manual_seed(step)
    first, difference = torch.randint(NUMBERS, (2, BATCH, 1), generator=random)
    rows = (first + difference * torch.arange(LENGTH + 1)) % NUMBERS
    return rows.chunk(grid.data_set.size())[grid.data_set.rank()].unflatten(0, (microbatches, -1))


class Training:
    """This rank's part of the model, its optimizer, and the losses of the steps so far."""

    def __init__(self, grid, microbatches, joins):
        self.grid, self.microbatches, self.losses = grid, microbatches, []
        self.stage = make_stage(grid)
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(self.stage.parameters(), lr=3e-3),
            named_parameters=self.stage.named_parameters(),
            backward_passes_per_step=microbatches,
            process_set=grid.data_set,  # averages the gradients of this part of this stage over the copies
        )
        self.first = make_stage(grid).state_dict(), self.optimizer.state_dict(), []
        self.has_state = not joins  # this rank has made all steps, or has the state of a rank that has
        self.goes_on = False  # all ranks that are in a whole copy have the state

    def take_state(self):
        """In the beginning, and when the world has changed: brings the state to the ranks that lack it, from the same part of
        another copy. If a rank is lost meanwhile, some ranks may have the state and others not. So in the end the ranks of all
        whole copies agree whether they go on: no rank may wait for one that has not decided the same."""
        self.goes_on = False
        if not self.grid.is_whole():
            self.has_state = False  # the other copies go on without this one
            return
        self.grid.find_neighbours()
        try:
            self.copy_state()
        except hvd.RankLostError:
            pass  # the rank that sends the state, or one of this copy
        try:
            self.goes_on = self.ranks_for(self.has_state) == self.grid.all_set.size()
        except hvd.RankLostError:
            self.has_state = False  # a rank of this copy

    def copy_state(self):
        """Raises RankLostError on some ranks of a copy, and not on others, if the rank that sends the state is lost."""
        grid, copies = self.grid, self.grid.data_set.size()
        own = grid.data_set.rank() if self.has_state else copies
        first = int(hvd.allreduce(torch.tensor(own), name="first with the state", op=hvd.Min, process_set=grid.data_set))
        found = hvd.allreduce(torch.tensor(first < copies), name="found", op=hvd.Min, process_set=grid.all_set)
        if not found:
            self.set_state(self.first)  # a part is lost in all copies. A large job would have a checkpoint
            return
        state = self.stage.state_dict(), self.optimizer.state_dict(), self.losses
        state = hvd.broadcast_object(state, grid.data_set.ranks[first], name="state", process_set=grid.data_set)
        if not self.has_state:
            self.set_state(state)

    def ranks_for(self, value):
        """The number of ranks on which the value is true, of those that are in whole copies and not lost."""
        votes = torch.tensor(float(value))
        return int(hvd.allreduce(votes, name="ranks for", op=hvd.Sum, process_set=self.grid.all_set))

    def set_state(self, state):
        stage, optimizer, losses = state
        self.stage.load_state_dict(stage)
        self.optimizer.load_state_dict(optimizer)
        self.losses = list(losses)
        self.has_state = True

    def step(self):
        """Makes the next step, or none if a rank was lost in it. Returns whether it has made it."""
        try:
            self.optimizer.zero_grad()
            rows = make_rows(len(self.losses), self.microbatches, self.grid)
            loss = compute_gradients(self.stage, self.optimizer, rows, self.grid)
            self.optimizer.synchronize()
            loss = self.agree(loss)
        except hvd.RankLostError:  # of this copy
            self.goes_on = self.has_state = False
            loss = None
        if loss is None:
            self.optimizer.drop_gradients()
            return False
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        self.losses.append(loss)
        return True

    def agree(self, loss):
        """Whether the step counts: returns the mean loss of all copies, the same on all ranks. None: ranks were lost.

        A rank comes here once its gradients are averaged. If all ranks have come here, none was lost before, and each
        average is over all copies. If one has not, some averages may be without it, and all ranks drop the step."""
        grid = self.grid
        share = loss / grid.data_set.size() if grid.part == 0 else 0.0
        sums = hvd.allreduce(torch.tensor([1.0, share]), name="agree", op=hvd.Sum, process_set=grid.all_set)
        ranks, mean = sums.tolist()
        return mean if ranks == grid.all_set.size() else None

    def is_first(self):
        """Whether this rank is the first one that trains: it prints."""
        return self.goes_on and self.grid.all_set.rank() == 0


# ---- the whole -----------------------------------------------------------------------------------


def misfit(args):
    """Why the model cannot be split like this over the job's ranks; None if it can."""
    if args.tensor < 1 or HEADS % args.tensor:
        return f"--tensor {args.tensor} does not divide the {HEADS} heads"
    if args.pipeline < 1 or BLOCKS % args.pipeline:
        return f"--pipeline {args.pipeline} does not divide the {BLOCKS} blocks"
    copies, rest = divmod(hvd.size(), args.tensor * args.pipeline)
    elastic = hvd.elastic.world().elastic
    if elastic and copies < 2:
        return "in an elastic job another copy of the model has to go on: start more ranks, or change --tensor and --pipeline"
    if rest:
        return (
            f"{hvd.size()} ranks cannot be shared by {args.tensor} parts x {args.pipeline} stages: start a multiple "
            f"of {args.tensor * args.pipeline} ranks, or change --tensor and --pipeline"
        )
    # In an elastic job fewer copies have to share them at times.
    for sharing in range(1 if elastic else copies, copies + 1):
        if args.microbatches < 1 or BATCH % (sharing * args.microbatches):
            return (
                f"the {BATCH} rows of a step cannot be shared evenly by {sharing} copies with {args.microbatches} "
                "microbatches each: change --microbatches"
            )
    return None


def parse():
    """The command line, once hvd knows the number of ranks, and whether this rank has joined a job that has its sets. Ends all
    ranks with exit code 2 if the command line is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Without --tensor and --pipeline both are 2, or 1 in one process. If one is given, the other is 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tensor", type=int, help="parts of each block (default: see below)")
    parser.add_argument("--pipeline", type=int, help="stages of the model (default: see below)")
    parser.add_argument("--microbatches", type=int, default=2, help="of each copy in a step (default: 2)")
    parser.add_argument("--steps", type=int, default=200, help="(default: 200)")
    parser.add_argument(
        "--pace", type=float, default=0.1, help="least seconds of a step while ranks are missing (default: 0.1)"
    )
    parser.add_argument("--exact", action="store_true", help="in the end print the loss of every step, with all digits")
    args = parser.parse_args()
    hvd.init()
    joins = hvd.elastic.world().is_new
    hvd.enter()  # a rank that joins waits here until it is one of the job's ranks, and knows its place
    joins = joins and hvd.known_process_sets() != []  # if all ranks were lost, the new ones begin anew
    usual = 2 if hvd.size() > 1 and args.tensor is None and args.pipeline is None else 1
    args.tensor = usual if args.tensor is None else args.tensor
    args.pipeline = usual if args.pipeline is None else args.pipeline
    wrong = None if joins else misfit(args)
    if wrong:
        if hvd.rank() == 0:
            print(f"{parser.prog}: error: {wrong}", file=sys.stderr, flush=True)
        hvd.barrier()  # hvdrun ends the job at the first rank that fails: not before rank 0 has said why
        sys.exit(2)
    return args, joins


def main():
    args, joins = parse()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    grid = Grid(args.tensor, args.pipeline, joins)
    training = Training(grid, args.microbatches, joins)
    training.take_state()
    if joins:
        say_world(training)
    # The ranks end together: those of a copy that lacks a rank have to take the last state.
    while not (training.goes_on and grid.is_complete() and len(training.losses) >= args.steps):
        began = time.monotonic()
        if training.goes_on and len(training.losses) < args.steps:
            run_step(training, args)
        if hvd.elastic.commit():
            training.take_state()
            say_world(training)
        if not grid.is_complete():
            time.sleep(max(0, args.pace - (time.monotonic() - began)))
    if args.exact and training.is_first():
        for step, loss in enumerate(training.losses):
            print(f"exact {step:3d}  loss {loss!r}", flush=True)
    hvd.shutdown()


def run_step(training, args):
    step, prints = len(training.losses), training.is_first()
    made = training.step()
    if prints and not made:
        print(f"step {step}: dropped, a rank is lost", file=sys.stderr, flush=True)
    elif prints and (step % 20 == 0 or step == args.steps - 1):
        print(f"step {step:3d}  loss {training.losses[step]:.6f}", flush=True)


def say_world(training):
    if training.is_first():
        size, places = training.grid.all_set.size(), training.grid.size()
        print(f"step {len(training.losses)}: {size} of {places} ranks train", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
