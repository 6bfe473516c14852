#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer that is split over ranks in three ways at a time: data, tensor and pipeline parallel.

    hvdrun -np 8 python3 examples/transformer_torch.py                  2 x 2 x 2
    python3 examples/transformer_torch.py                               the same training in one process
    hvdrun -np 4 python3 examples/transformer_torch.py --tensor 4       one copy of the model, split by heads
    hvdrun -np 4 python3 examples/transformer_torch.py --pipeline 4 --microbatches 8
                                                                        one copy, a block of the model on each rank

The job has ranks / (tensor * pipeline) copies of the model. The model learns to continue rows of numbers such as
3, 8, 13, 2, ... (modulo 16), each with a first number and a difference of its own. It trains on the CPU.

Every split prints the losses of one process, but for rounding. The example computes in float64 to show that: training
amplifies rounding, and in float32 the losses of two splits may differ by 0.01 after 200 steps.
"""
import argparse
import sys

import torch
import torch.nn.functional as F

import hvd.torch as hvd

NUMBERS, LENGTH = 16, 16  # the numbers of a row are 0 to NUMBERS - 1; the model sees LENGTH of them
WIDTH, HEADS, BLOCKS = 32, 4, 4
BATCH = 32  # rows of a step, of all copies of the model together


# ---- which part of the work this rank has --------------------------------------------------------


class Grid:
    """This rank's coordinates in the grid of ranks, and the three sets of ranks that it works with.

    Tensor parallel ranks are neighbours, because they exchange the most data: they should be on one host. Stages
    exchange the least, so they are the furthest apart.

        8 ranks, 2 x 2 x 2        stage 0                stage 1
        copy 0                    ranks 0 and 1          ranks 4 and 5
        copy 1                    ranks 2 and 3          ranks 6 and 7
    """

    def __init__(self, tensor, pipeline):
        copies = hvd.size() // (tensor * pipeline)
        self.copies, self.parts, self.stages = copies, tensor, pipeline
        stage, rest = divmod(hvd.rank(), copies * tensor)
        self.copy, self.part = divmod(rest, tensor)
        self.stage = stage

        def number(copy, part, stage):
            return (stage * copies + copy) * tensor + part

        # Only the ranks of a set call form_process_set(), so each rank makes its own three sets. With
        # add_process_set() all ranks would have to add all 12 sets, in the same order. The name may be the same in
        # all groups: a set is made by the ranks that ask for the same ranks under the same name.
        self.tensor_set = hvd.form_process_set([number(self.copy, p, stage) for p in range(tensor)], "tensor")
        self.data_set = hvd.form_process_set([number(c, self.part, stage) for c in range(copies)], "data")
        self.pipeline_set = hvd.form_process_set(
            [number(self.copy, self.part, s) for s in range(pipeline)], "pipeline"
        )
        # Each part of a stage sends to the same part of the next stage.
        line = self.pipeline_set.ranks
        self.before = line[stage - 1] if stage > 0 else None  # the rank that sends activations to this rank
        self.after = line[stage + 1] if stage + 1 < pipeline else None  # the rank that this rank sends them to
        self.microbatch = 0  # the number of the one that goes forward now


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
    if grid.before is None:
        torch.manual_seed(1000)
        layers.append(Embedding())
    for number in range(grid.stage * share, (grid.stage + 1) * share):
        torch.manual_seed(number)
        layers.append(Block(f"block{number}", grid))
    if grid.after is None:
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


def train_step(stage, optimizer, rows, grid):
    """One step with this copy's rows, a tensor of microbatches. First all microbatches go forward through the stages,
    then all go backward (GPipe's schedule). Returns the mean loss of this copy on the last stage, None on others."""
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
        x = inputs[tag] if grid.before is None else activations.wait(tag).requires_grad_()
        y = stage(x)
        if grid.after is None:
            y = F.cross_entropy(y.flatten(0, 1), wanted[tag].flatten()) / count
        else:
            send(y, grid.after, tag)
        entered.append(x)
        results.append(y)
    for tag in range(count):
        # backward() adds to the gradients of the microbatches before. During the last one the optimizer's hooks send
        # each gradient to the other copies as soon as it is complete.
        results[tag].backward(None if grid.after is None else gradients.wait(tag))
        if grid.before is not None:
            send(entered[tag].grad, grid.before, tag)
    for message in sent:
        message.wait()
    optimizer.step()
    return sum(results).detach() if grid.after is None else None


# ---- data parallel, and the whole ----------------------------------------------------------------


def make_rows(step, microbatches, grid):
    """This copy's share of a step's rows, microbatches x rows x (LENGTH + 1) numbers. Every rank makes all rows: stages
    and parts of one copy need the same."""
    random = torch.Generator().manual_seed(step)
    first, difference = torch.randint(NUMBERS, (2, BATCH, 1), generator=random)
    rows = (first + difference * torch.arange(LENGTH + 1)) % NUMBERS
    return rows.chunk(grid.copies)[grid.copy].unflatten(0, (microbatches, -1))


def misfit(args):
    """Why the model cannot be split like this over the job's ranks; None if it can."""
    if args.tensor < 1 or HEADS % args.tensor:
        return f"--tensor {args.tensor} does not divide the {HEADS} heads"
    if args.pipeline < 1 or BLOCKS % args.pipeline:
        return f"--pipeline {args.pipeline} does not divide the {BLOCKS} blocks"
    copies, rest = divmod(hvd.size(), args.tensor * args.pipeline)
    if rest:
        return (
            f"{hvd.size()} ranks cannot be shared by {args.tensor} parts x {args.pipeline} stages: start a multiple "
            f"of {args.tensor * args.pipeline} ranks, or change --tensor and --pipeline"
        )
    if args.microbatches < 1 or BATCH % (copies * args.microbatches):
        return (
            f"the {BATCH} rows of a step cannot be shared evenly by {copies} copies with {args.microbatches} "
            "microbatches each: change --microbatches"
        )
    return None


def parse():
    """The command line, once hvd knows the number of ranks. Ends all ranks with exit code 2 if it is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="Without --tensor and --pipeline both are 2, or 1 in one process. If one is given, the other is 1.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tensor", type=int, help="parts of each block (default: see below)")
    parser.add_argument("--pipeline", type=int, help="stages of the model (default: see below)")
    parser.add_argument("--microbatches", type=int, default=2, help="of each copy in a step (default: 2)")
    parser.add_argument("--steps", type=int, default=200, help="(default: 200)")
    parser.add_argument("--exact", action="store_true", help="print the loss of every step, with all digits")
    args = parser.parse_args()
    hvd.init()
    usual = 2 if hvd.size() > 1 and args.tensor is None and args.pipeline is None else 1
    args.tensor = usual if args.tensor is None else args.tensor
    args.pipeline = usual if args.pipeline is None else args.pipeline
    wrong = misfit(args)
    if wrong:
        if hvd.rank() == 0:
            print(f"{parser.prog}: error: {wrong}", file=sys.stderr, flush=True)
        hvd.barrier()  # hvdrun ends the job at the first rank that fails: not before rank 0 has said why
        sys.exit(2)
    return args


def main():
    args = parse()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    grid = Grid(args.tensor, args.pipeline)
    stage = make_stage(grid)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.Adam(stage.parameters(), lr=3e-3),
        named_parameters=stage.named_parameters(),
        backward_passes_per_step=args.microbatches,
        process_set=grid.data_set,  # averages the gradients of this part of this stage over the copies
    )
    # The ranks of the last stage have the loss. The first of them prints it.
    prints = grid.after is None and grid.copy == 0 and grid.part == 0
    for step in range(args.steps):
        loss = train_step(stage, optimizer, make_rows(step, args.microbatches, grid), grid)
        if loss is None:
            continue
        loss = float(hvd.allreduce(loss, name="loss", process_set=grid.data_set))
        if prints and (args.exact or step % 20 == 0 or step == args.steps - 1):
            print(f"step {step:3d}  loss {loss!r}" if args.exact else f"step {step:3d}  loss {loss:.6f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
