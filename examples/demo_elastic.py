# SPDX-License-Identifier: Apache-2.0
"""The part of the demo that kills and adds ranks while digits_elastic.py trains."""
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import torch

EPOCHS = 15
KILL_AFTER, GROW_AFTER = 4, 6  # epochs
SECONDS = 180
NAME = f"demo-{os.getpid()}"

_EPOCH = re.compile(r"epoch +(\d+)  loss")
_CHANGE = re.compile(r"hvdrun: epoch \d+: (\d+) of \d+ ranks after ([0-9.]+) ms: (.*)")


class Failed(Exception):
    """A failure of the demo; the text is one line."""


class Run:
    """A running hvdrun. A thread prints its output, and finds epochs and changes in it."""

    def __init__(self, command, env):
        self.epoch = 0
        self.changes = []  # (epoch, ranks, ms, cause)
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            print(line, end="", flush=True)
            epoch, change = _EPOCH.search(line), _CHANGE.search(line)
            if epoch:
                self.epoch = int(epoch.group(1))
            if change:
                ranks, ms, cause = change.groups()
                self.changes.append((self.epoch, int(ranks), float(ms), cause))

    def await_epoch(self, epoch, deadline):
        while self.epoch < epoch:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the elastic run did not reach epoch {epoch}")
            time.sleep(0.02)

    def end(self, deadline):
        try:
            code = self.process.wait(max(1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed(f"the elastic run took longer than {SECONDS} s") from None
        finally:
            if self.process.poll() is None:
                self.process.terminate()
                self.process.wait(20)
            self.reader.join()
        if code:
            raise Failed(f"the elastic run ended with exit code {code}")


def _hvdrun(build, *words):
    command = [os.path.join(build, "hvdrun"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def _kill_rank(build, rank):
    ranks = json.loads(_hvdrun(build, "status", NAME, "--json"))["ranks"]
    os.kill(next(r["pid"] for r in ranks if r["rank"] == rank), signal.SIGKILL)


def train_elastic(build, ranks, env, save):
    """Trains, kills rank 2, adds two ranks. Returns what rank 0 saved, and the changes."""
    here = os.path.dirname(os.path.abspath(__file__))
    begin = time.monotonic()
    deadline = begin + SECONDS
    pace = 1.0  # s per epoch: a joiner first loads PyTorch, and the training must not end before that
    run = Run(
        [os.path.join(build, "hvdrun"), "-np", str(ranks), "--min-np", "2", "--max-np", str(ranks + 2)]
        + ["--name", NAME, "--no-prefix", sys.executable, os.path.join(here, "digits_elastic.py")]
        + ["--epochs", str(EPOCHS), "--pace", str(pace), "--await-ranks", str(ranks + 2), "--save", save],
        env,
    )
    try:
        run.await_epoch(KILL_AFTER, deadline)
        _kill_rank(build, 2)
        run.await_epoch(GROW_AFTER, deadline)
        _hvdrun(build, "scale", NAME, str(ranks + 2))
    finally:
        run.end(deadline if sys.exc_info()[0] is None else time.monotonic())
    sizes = [change[1] for change in run.changes]
    if ranks - 1 not in sizes or ranks + 2 not in sizes:
        raise Failed(f"expected {ranks - 1} and {ranks + 2} ranks, but the numbers of ranks were {sizes}")
    for epoch, size, ms, cause in run.changes:
        print(f"after training epoch {epoch}: {size} ranks after {ms:.1f} ms: {cause}")
    return torch.load(save), run.changes


def mark_changes(axis, changes, with_text):
    """Draws a dotted line for each change; with_text: beside it the ranks and the milliseconds that the change
    took, so that no label covers another. Call it once the axis has its limits and its final size."""
    left, right = axis.get_xlim()
    pixel = (right - left) / axis.get_window_extent().width  # in epochs
    column = 9 * axis.figure.dpi / 72 * 1.25 * pixel  # width of a label, whose text is vertical
    taken = left
    for number, (epoch, size, ms, _) in enumerate(changes):
        line = epoch + 0.5
        name = "the ranks change" if number == 0 else None
        axis.axvline(line, color="tab:green", lw=0.8, ls=":", label=name)
        if with_text:
            at = max(line + 2 * pixel, taken)
            taken = at + column
            text = f"{size} ranks after {ms:.1f} ms"
            place = ("data", "axes fraction")
            axis.annotate(text, (at, 0.98), xycoords=place, rotation=90, va="top", ha="left", fontsize=8)
