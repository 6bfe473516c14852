#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `make demo`: digits_torch.py on 4 ranks and in one process, and compares the two; then
digits_elastic.py on 4 ranks, of which it kills one, which hvdrun replaces, and to which it adds two.

    demo.py BUILD        the folder with hvdrun and libhvd.so

Leaves BUILD/demo/timeline.json and BUILD/demo/training.png. The last line begins with "demo: ok". On an
error it begins with "demo: FAILED", and the exit code is not 0.
"""
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from demo_elastic import Failed, mark_changes, train_elastic

RANKS = 4
MAX_REL_DIFF = 1e-3
MIN_ACCURACY = 0.95
SECONDS = 240
ELASTIC = "4 ranks, 1 killed, 3 added"
HERE = os.path.dirname(os.path.abspath(__file__))


def environment(build):
    """The environment of a rank: this checkout's library and package. No GPU, so that one process and four
    ranks compute the same weights.
    """
    env = dict(os.environ)
    env["CUDA_VISIBLE_DEVICES"] = ""
    env["HVD_LIBRARY"] = os.path.abspath(os.path.join(build, "libhvd.so"))
    package = os.path.join(os.path.dirname(HERE), "core", "python")
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [package, env.get("PYTHONPATH")]))
    env["OMP_NUM_THREADS"] = "1"
    return env


def train(build, command, save):
    """Runs one training; returns what the training saved."""
    command = command + [sys.executable, os.path.join(HERE, "digits_torch.py"), "--save", save]
    try:
        code = subprocess.run(command, env=environment(build), timeout=SECONDS).returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(str(error)) from None
    if code:
        raise Failed(f"{' '.join(command)} ended with exit code {code}")
    return torch.load(save)


def max_rel_diff(a, b):
    """The largest max|a-b| / max|a| of all tensors."""
    if a.keys() != b.keys():
        raise Failed("the runs do not have the same tensors")
    return max(float((a[k] - b[k]).abs().max() / a[k].abs().max()) for k in a)


def check_timeline(path):
    """Fails unless the timeline is JSON and contains gradients."""
    try:
        with open(path) as file:
            events = json.load(file)
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from None
    if "allreduce.conv1.weight" not in json.dumps(events):
        raise Failed(f"{path}: no gradient among its {len(events)} events")


def draw(runs, elastic, changes, path):
    """Plots loss and accuracy of all runs per epoch, and the changes of the ranks in the last run."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4.8))
    for axis, key, label in (
        (axes[0], "loss", "training loss (cross entropy, log scale)"),
        (axes[1], "accuracy", "accuracy on held-out images"),
    ):
        for run, style in zip(runs, ({"lw": 5, "alpha": 0.35}, {"lw": 1.6, "ls": "--", "color": "black"})):
            values = [point[key] for point in run["curves"]]
            name = f"{run['ranks']} ranks" if run["ranks"] > 1 else "1 process"
            axis.plot(range(1, len(values) + 1), values, label=name, **style)
        values = [point[key] for point in elastic["curves"]]
        axis.plot(range(1, len(values) + 1), values, label=ELASTIC, lw=1.6, color="tab:green")
        axis.set_xlabel("training epoch")
        axis.set_ylabel(label)
        axis.set_xlim(left=1)
        axis.grid(alpha=0.3)
    axes[0].set_yscale("log")
    axes[1].axhline(MIN_ACCURACY, color="tab:red", lw=0.8)
    axes[1].annotate(
        f"required: {MIN_ACCURACY}",
        (0.99, MIN_ACCURACY - 0.012),
        xycoords=("axes fraction", "data"),
        color="tab:red",
        va="top",
        ha="right",
    )
    figure.suptitle("Handwritten digits: on 4 ranks, in 1 process, and on ranks that are killed and added")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    for axis in axes:
        mark_changes(axis, changes, axis is axes[0])
    # Below the plots, where it hides neither curves nor labels.
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncol=4, frameon=False)
    figure.savefig(path, dpi=120)


def images_per_second(run):
    return statistics.median(point["images_per_second"] for point in run["curves"])


def tell_speed(ranks, single):
    """Prints both speeds and, if the ranks are not faster than one process, why."""
    fast, alone = images_per_second(ranks), images_per_second(single)
    print(f"{RANKS} ranks trained {fast:.0f} images/s, 1 process {alone:.0f} images/s.")
    if fast > alone:
        return
    cores = len(os.sched_getaffinity(0))
    shared = f" The {RANKS} ranks share {cores} cores." if cores < RANKS else ""
    parameters = sum(tensor.numel() for tensor in single["weights"].values())
    print(
        f"More ranks are not faster here, which is expected.{shared} The net is tiny ({parameters} parameters), so a "
        "step computes for less time than its ranks wait for each other. This part compares results, not speed; "
        "make bench measures speed."
    )


def demo(build):
    """Runs all trainings and all checks. Returns (accuracy, difference)."""
    folder = os.path.join(build, "demo")
    os.makedirs(folder, exist_ok=True)
    timeline = os.path.join(folder, "timeline.json")
    for name in ("timeline.json", "training.png", "ranks.pt", "single.pt", "elastic.pt"):
        if os.path.exists(os.path.join(folder, name)):
            os.unlink(os.path.join(folder, name))
    hvdrun = [os.path.join(build, "hvdrun"), "-np", str(RANKS), "--timeline-filename", timeline]
    print(f"{RANKS} ranks under hvdrun:", flush=True)
    ranks = train(build, hvdrun, os.path.join(folder, "ranks.pt"))
    print("1 process, the same global batch:", flush=True)
    single = train(build, [], os.path.join(folder, "single.pt"))
    if (ranks["ranks"], single["ranks"]) != (RANKS, 1):
        raise Failed(f"the runs had {ranks['ranks']} and {single['ranks']} ranks")
    difference = max_rel_diff(single["weights"], ranks["weights"])
    accuracy = ranks["curves"][-1]["accuracy"]
    check_timeline(timeline)
    tell_speed(ranks, single)
    print(
        f"{RANKS} ranks, of which 1 is killed; then `hvdrun scale` to {RANKS + 2}. The program's lines count "
        "training epochs (passes over the images). hvdrun's lines count membership epochs (each set of ranks has "
        "a number):",
        flush=True,
    )
    elastic, changes = train_elastic(build, RANKS, environment(build), os.path.join(folder, "elastic.pt"))
    draw((ranks, single), elastic, changes, os.path.join(folder, "training.png"))
    if not difference <= MAX_REL_DIFF:
        raise Failed(f"the weights differ: max|a-b| / max|a| is {difference:.1e} > {MAX_REL_DIFF:g}")
    if accuracy < MIN_ACCURACY:
        raise Failed(f"the accuracy is {accuracy:.4f}, less than {MIN_ACCURACY}")
    if elastic["curves"][-1]["accuracy"] < MIN_ACCURACY:
        raise Failed(f"after the changes the accuracy is {elastic['curves'][-1]['accuracy']:.4f}")
    print(f"{timeline} opens in https://ui.perfetto.dev; curves are in {folder}/training.png")
    return accuracy, difference


def main():
    begin = time.monotonic()
    try:
        accuracy, difference = demo(sys.argv[1] if len(sys.argv) > 1 else "build")
    except Failed as reason:
        print(f"demo: FAILED: {reason}")
        sys.exit(1)
    seconds = time.monotonic() - begin
    found = f"accuracy={accuracy:.2f} max_rel_diff={difference:.0e}"
    print(f"demo: ok ranks={RANKS} {found} seconds={seconds:.0f}")


if __name__ == "__main__":
    main()
