# SPDX-License-Identifier: Apache-2.0
"""A job is one test, or one step such as a build, as the runner sees it.

The runner reads these lines in the first 40 lines of a program's or script's source:

    timeout: 600            seconds after which it is ended; 300 without this line
    takes: 40 s             its duration on a quiet machine; 2 s without this line
    takes: 40 s, waiting    the same, and it uses less than a third of a core, so that many of its kind can run at a time
    needs: LABEL            a step that must pass first, if it is part of the run

A step is written LABEL=COMMAND, LABEL:SECONDS=COMMAND where it takes longer than a few seconds, and
LABEL:SECONDS,waiting=COMMAND if its work is usually done already."""
import dataclasses
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEAD_LINES = 40
TAKES = 2.0                     # seconds, of a test without this line
SANITIZED = ("asan/", "tsan/")
SLOWER = 3                      # factor by which a sanitizer slows a test, about
STEP_LIMIT = 1500               # seconds; HVD_STEP_TIMEOUT
TEST_LIMIT = 300                # seconds; HVD_TEST_TIMEOUT
STEP = re.compile(r"([\w/.-]+)(?::(\d+)(,waiting)?)?=(.*)", re.S)
# The step that the other jobs of its lane need: asan/... starts when asan/build has passed, if it is part of the run.
BUILD_STEP = "build"


@dataclasses.dataclass
class Job:
    label: str
    command: list
    limit: int                  # seconds
    takes: float = TAKES        # seconds, expected
    waiting: bool = False       # otherwise it computes
    needs: str = ""             # the label of a step that has to pass first

    def log_name(self):
        return self.label.replace("/", "-") + ".log"

    def lane(self):
        """The lane to which it counts: unit, multi, e2e, asan ..."""
        return self.label.split("/")[0]

    def sanitized(self):
        return self.label.startswith(SANITIZED)


def source_of(test):
    """The source of a test's program; a script is its own source."""
    if test.endswith((".sh", ".py")):
        return test
    found = re.search(r"/tests/(.*)", test)
    return os.path.join(ROOT, "tests", found[1] + ".c") if found else None


def label_of(test, build):
    name = test.removesuffix(".sh")
    for folder, prefix in ((f"{build}/address/tests/", "asan/"), (f"{build}/thread/tests/", "tsan/"),
                           (f"{build}/tests/", ""), ("tests/", "")):
        if name.startswith(folder):
            return prefix + name[len(folder):]
    return name


def head_of(source):
    """{word: rest of its line} of "word: ..." lines in the head of a source."""
    said = {}
    try:
        with open(source, encoding="utf-8", errors="replace") as f:
            lines = [line for line, _ in zip(f, range(HEAD_LINES))]
    except (OSError, TypeError):
        return said
    for line in lines:
        found = re.match(r"[#* ]*(timeout|takes|needs): *(.*)", line)
        if found:
            said.setdefault(found[1], found[2].strip())
    return said


def step(text):
    label, seconds, waiting, command = STEP.match(text).groups()
    return Job(label, ["bash", "-c", command], int(os.environ.get("HVD_STEP_TIMEOUT") or STEP_LIMIT),
               float(seconds or TAKES), bool(waiting))


def test(path, build, python):
    label = label_of(path, build)
    said = head_of(source_of(path))
    takes = re.match(r"(\d+(?:\.\d+)?) s(, waiting)?$", said.get("takes", ""))
    limit = re.match(r"\d+", said.get("timeout", ""))
    job = Job(label, [python, path] if path.endswith(".py") else [path],
              int(limit[0]) if limit else int(os.environ.get("HVD_TEST_TIMEOUT") or TEST_LIMIT),
              float(takes[1]) if takes else TAKES, bool(takes and takes[2]), said.get("needs", ""))
    if job.sanitized():
        job.limit *= SLOWER
        job.takes *= SLOWER
    return job


def jobs(words, build, python):
    """The jobs of a command line, each with the step that it needs."""
    made = [step(word) if STEP.match(word) else test(word, build, python) for word in words]
    labels = {job.label for job in made}
    for job in made:
        first = f"{job.lane()}/{BUILD_STEP}"
        if first in labels and job.label != first:
            job.needs = first
        if job.needs not in labels:
            job.needs = ""
    return made
