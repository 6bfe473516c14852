# SPDX-License-Identifier: Apache-2.0
"""The runner's output: a line for each job, failures with their lines of the log, skips, and times."""
import fnmatch
import os
import re
import time

from runner.job import ROOT

LONGEST = 20                    # jobs in the table at the end
OVER = 4 / 3                    # a lane may use its budget and a third
TAIL = 120                      # lines of a failed job's log; HVD_TEST_TAIL
# Lines that explain a failure, as cmocka, compilers, Python, make and our own tests print them; and lines that only
# look like it.
WRONG = re.compile(r"FAILED|FAIL:|[Ee]rror|ERROR|^\[ +LINE|[Aa]ssert|Sanitizer|Traceback|not ended within|exit code [1-9]"
                   r"|signal [1-9]|left behind|timed out|^make.*\*\*\*")
WELL = re.compile(r"\[ +(RUN|OK) |ok |SKIP: ")


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read().splitlines()
    except OSError:
        return []


def reasons(log, most):
    """The lines of a log that explain a failure."""
    found = [f"    > {i}:{line}"[:306] for i, line in enumerate(read(log), 1) if WRONG.search(line) and not WELL.match(line)]
    return found[:most]


def allowed_skips():
    """Patterns of tests/SKIPS: lines "id reason"; the id may be a shell pattern."""
    lines = [line.split(None, 1) for line in read(os.path.join(ROOT, "tests", "SKIPS"))]
    return [line[0] for line in lines if len(line) == 2 and not line[0].startswith("#")]


def budgets():
    """{lane: minutes of processor time} of tests/BUDGETS."""
    lines = [line.split() for line in read(os.path.join(ROOT, "tests", "BUDGETS"))]
    return {line[0]: float(line[1]) for line in lines if len(line) >= 2 and not line[0].startswith("#")}


def clock(seconds):
    return f"{int(seconds) // 60:3d}:{int(seconds) % 60:02d}"


class Report:
    """Called by one thread at a time."""

    def __init__(self, jobs, strict, say=print, slowness=lambda: 1.0):
        """slowness: see Yardstick."""
        self.total, self.strict, self.say, self.slowness = len(jobs), strict, say, slowness
        self.outcomes, self.begin = [], time.monotonic()

    def line(self, outcome):
        """One job has ended."""
        self.outcomes.append(outcome)
        done = f"{len(self.outcomes):{len(str(self.total))}}/{self.total}"
        why = f"  ({outcome.why})" if outcome.why else ""
        self.say(f"{outcome.verdict:4}  {outcome.job.label:46} {outcome.seconds:6.1f} s  "
                 f"{clock(time.monotonic() - self.begin)}  {done}{why}")
        if outcome.verdict == "FAIL":
            tail = read(outcome.log)[-int(os.environ.get("HVD_TEST_TAIL") or TAIL):]
            for text in [*reasons(outcome.log, 40), *(f"    | {line}" for line in tail)]:
                self.say(text)
            self.say(f"    the whole of it: {outcome.log}")

    def stranded(self, job, others):
        """Jobs that cannot run because a job that they needed has not passed. Only that one counts as failed."""
        self.total -= len(others)
        if others:
            self.say(f"      {len(others)} that need {job.label} do not run: {', '.join(other.label for other in others)}")

    def skips(self):
        """Prints what was skipped. Returns the lines that a strict run does not allow, and the number of all lines."""
        patterns, forbidden = allowed_skips(), []
        lines = [line for outcome in self.outcomes for line in outcome.skips]
        if lines:
            self.say("")
        for line in lines:
            name = line.removeprefix("SKIP: ").split(":")[0]
            known = any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
            if self.strict and not known:
                forbidden.append(line)
            self.say(line + ("" if known or not self.strict else "  <- not allowed"))
        return forbidden, len(lines)

    def lanes(self):
        """{lane: [jobs, seconds, seconds of processor time]}"""
        sums = {}
        for outcome in self.outcomes:
            lane = sums.setdefault(outcome.job.lane(), [0, 0.0, 0.0])
            for i, more in enumerate((1, outcome.seconds, outcome.cpu)):
                lane[i] += more
        return sums

    def times(self):
        """The tables of the longest jobs and of the lanes. Returns the sentences about lanes over their budget.

        What counts for a lane is processor time: other load on the machine makes jobs wait longer. It also makes them compute
        longer, but less so, and the yardstick tells by how much."""
        self.say("\nlongest            minutes  of processor time")
        for outcome in sorted(self.outcomes, key=lambda one: -one.seconds)[:LONGEST]:
            self.say(f"  {outcome.job.label:46} {outcome.seconds / 60:6.1f} {outcome.cpu / 60:6.1f}")
        self.say("\nlane        jobs  minutes  of processor time  budget")
        over, limits, slowness = [], budgets(), self.slowness()
        for lane, (jobs, seconds, cpu) in sorted(self.lanes().items(), key=lambda item: -item[1][2]):
            limit = limits.get(lane)
            self.say(f"  {lane:10} {jobs:4} {seconds / 60:7.1f} {cpu / 60:10.1f} {limit if limit else '':>15}")
            if limit and cpu / 60 > limit * OVER * slowness:
                over.append(f"lane {lane} used {cpu / 60:.1f} min of processor time, its budget in tests/BUDGETS is {limit:g}")
        load = " ".join(f"{n:.1f}" for n in os.getloadavg())
        self.say(f"\n{(time.monotonic() - self.begin) / 60:.1f} min on {os.cpu_count()} cores, load {load}, "
                 f"{slowness:.2f} times as slow as a quiet machine (budgets are judged by that)")
        return over

    def end(self):
        """Prints the last lines. Returns whether all is well."""
        forbidden, skipped = self.skips()
        failed = [(f"{one.job.label} ({one.why})", one.log) for one in self.outcomes if one.verdict == "FAIL"]
        failed += [(f"{line} (tests/SKIPS does not allow it)", None) for line in forbidden]
        over = self.times() if self.total > 1 else []
        if self.strict:
            failed += [(line, None) for line in over]
        if failed:
            self.say("")
        for text, log in failed:
            self.say(f"failed: {text}")
            for line in reasons(log, 8) if log else []:
                self.say(line)
        passed = sum(one.verdict == "ok" for one in self.outcomes)
        self.say(f"{passed} passed, {len(failed)} failed, {skipped} skipped")
        return not failed

    def save(self, path):
        """A line "label seconds cpu-seconds verdict" for each job, in the order in which they ended."""
        with open(path + ".new", "w", encoding="utf-8") as f:
            f.writelines(f"{one.job.label} {one.seconds:.1f} {one.cpu:.1f} {one.verdict}\n" for one in self.outcomes)
        os.replace(path + ".new", path)
