#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Chaos: an elastic job whose workers read from every sum which ranks contributed (worker.c), faults
that happen to it (nemesis.py), and a check of the workers' records (check.py).

    chaos.py [BUILD] [--seconds 60] [--seed N] [--scenario NAME,...|all] [--keep]

Several scenarios share the seconds, one job after the other. It prints the seed first, a line for each
fault, and the findings. Fails when a rule of check.py is broken, no operation finishes
for 20 s, the job does not end well, or leaves a process behind; then the folder with all logs stays and
the last line is the command that repeats the run. (The same seed causes the same faults on the same ranks;
the exact times depend on the machine.) Exit code 77: no scenario can run here."""
import argparse
import copy
import json
import os
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402
import job as jobs  # noqa: E402
import nemesis  # noqa: E402
import replicas  # noqa: E402

SCENARIOS = {**nemesis.SCENARIOS, **replicas.SCENARIOS}
QUIET = 20     # seconds without a result; less than the coordinator's 30 s, after which a silent rank and its stacks are gone
ENDING = 60    # seconds for a job to end on request
STARTING = 30


class Failed(Exception):
    """The job did not do what it had to."""


class Operations:
    """worker.c."""

    def __init__(self, args, seed):
        self.args, self.seed = args, seed

    def argv(self, build, records):
        return [os.path.join(build, "tests", "chaos", "worker"), records,
                "--seed", str(self.seed), "--max-bytes", str(self.args.max_bytes), "--pace", str(self.args.pace),
                "--sets", str(self.seed % 2 if self.args.sets is None else self.args.sets),
                *(["--only", self.args.only] if self.args.only else [])]

    def options(self):
        """For hvdrun."""
        keep = self.seed // 2 % 2 if self.args.places is None else self.args.places
        return ["--keep-places"] if keep else []

    def settle(self, _run):
        """What happens before the job is asked to end."""

    def check(self, records):
        return check.check(records)


class Run:
    """One scenario, one job."""

    def __init__(self, args, name, seconds, seed):
        self.args, self.name, self.seconds, self.seed = copy.copy(args), name, seconds, seed
        self.random = random.Random(seed)
        self.acts, place, self.pause = SCENARIOS[name]
        program = replicas.Stages if name in replicas.SCENARIOS else Operations
        self.program = program(self.args, seed)
        self.target, self.count, self.pending = self.args.np, 0, []
        self.folder = tempfile.mkdtemp(prefix="hvdc-")
        self.place = nemesis.PLACES[place](self.folder, self.args)
        self.begin = time.monotonic()
        self.job = self.stuck = None
        self.best = 0
        self.touched = set()

    # ---- for nemesis.py

    def event(self, what, uids):
        self.touched.update(uids)
        with open(os.path.join(self.job.records, "events.jsonl"), "a", encoding="utf-8") as f:
            f.write(json.dumps({"t": what, "ms": int(time.monotonic() * 1000), "uids": uids}) + "\n")

    def later(self, seconds, act):
        self.pending.append((time.monotonic() + seconds, act))

    def tell(self, text):
        if text:
            print(f"  {time.monotonic() - self.begin:7.2f} s  {text}", flush=True)

    # ---- the run

    def start(self):
        build = os.path.abspath(self.args.build)
        size = ["-np", str(self.args.np), "--min-np", str(self.args.min), "--max-np", str(self.args.max)]
        argv = [os.path.join(build, "hvdrun"), *size, *self.program.options(), *self.place.more,
                *self.program.argv(build, os.path.join(self.folder, "records"))]
        self.job = jobs.Job(self.folder, argv, self.place.env, self.place.before)
        deadline = time.monotonic() + STARTING
        while len(self.job.working()) < self.args.np:
            self.job.look()
            if self.job.ended() is not None:
                raise Failed(f"hvdrun ended with {self.job.ended()} before all workers worked")
            if time.monotonic() > deadline:
                raise Failed(f"{len(self.job.working())} of {self.args.np} workers work after {STARTING} s")
            time.sleep(0.05)

    def failed(self, worker):
        return worker.ended and worker.ended["t"] == "fail" and worker.uid not in self.touched

    def moves(self):
        """Fails unless some worker has finished an operation lately."""
        now, results = time.monotonic(), self.job.look()
        if not self.stuck or results > self.best:
            self.best, self.stuck = results, now
        if self.job.ended() is not None:
            raise Failed(f"hvdrun ended with {self.job.ended()} before the run was over")
        for worker in self.job.workers.values():
            if self.failed(worker):
                raise Failed(f"{worker.uid} failed: {worker.ended['what']}: {worker.ended['text']}")
        if now - self.stuck > QUIET:
            raise Failed(f"nothing was finished for {QUIET} s")

    def due(self):
        now = time.monotonic()
        for entry in [e for e in self.pending if e[0] <= now]:
            self.pending.remove(entry)
            entry[1]()

    def torment(self):
        weights = [w for w, _ in self.acts]
        end, following = time.monotonic() + self.seconds, time.monotonic() + 1
        while time.monotonic() < end:
            self.moves()
            self.due()
            if time.monotonic() >= following:
                following = time.monotonic() + self.random.uniform(*self.pause)
                self.tell(self.random.choices([a for _, a in self.acts], weights)[0](self))
            wake = min([following, time.monotonic() + 0.05, *(when for when, _ in self.pending)])
            time.sleep(max(0.0, wake - time.monotonic()))

    def finish(self):
        while self.pending:
            self.pending.sort(key=lambda e: e[0])
            time.sleep(max(0.0, self.pending[0][0] - time.monotonic()))
            self.due()
        if os.path.exists(os.path.join(self.job.records, "doom")):
            os.unlink(os.path.join(self.job.records, "doom"))
        shutil.rmtree(os.path.join(self.job.records, "inject"), ignore_errors=True)
        wrong = self.program.settle(self)
        if wrong:
            raise Failed(wrong)
        self.job.stop()
        deadline = time.monotonic() + ENDING
        while self.job.ended() is None:
            if time.monotonic() > deadline:
                raise Failed(f"the job has not ended within {ENDING} s")
            if self.job.look() >= 0 and any(self.failed(w) for w in self.job.workers.values()):
                deadline = min(deadline, time.monotonic() + 5)
            time.sleep(0.05)
        if self.job.ended() != 0:
            raise Failed(f"hvdrun ended with {self.job.ended()}")

    def autopsy(self):
        """Saves the coordinator's status and the workers' stacks next to the logs."""
        with open(os.path.join(self.folder, "status.json"), "w", encoding="utf-8") as f:
            json.dump(self.job.control.status(), f, indent=1)
        if self.job.ended() is None and not any(self.failed(w) for w in self.job.workers.values()):
            jobs.stacks(self.job, os.path.join(self.folder, "stacks.txt"))

    def run(self):
        """A list of what went wrong."""
        wrong = []
        try:
            self.start()
            self.torment()
            self.finish()
        except Failed as error:
            wrong.append(str(error))
            self.autopsy()
        finally:
            if self.job:
                self.job.look()
                left = self.job.end()
                if left and not wrong:
                    wrong.append(f"processes are left: {left}")
        return wrong + self.verdict(wrong)

    def verdict(self, wrong, most=12):
        try:
            done = self.program.check(self.job.records)
        except (check.Broken, OSError) as error:
            return [str(error)]
        if not done:
            return ["no records"]
        print(f"  {self.name}: {done.summary()}")
        # A job that was killed has no regular end.
        found = [f"{what}: {text}" for what, text in done.violations if what != "end" or not wrong]
        if not done.events and len(done.members) > 1:
            found.append(f"no fault was caused, but the job had {len(done.members)} epochs")
        return found[:most] + ([f"and {done.count - most} more"] if len(found) > most else [])

    def close(self, keep):
        self.place.close()
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)


def one(args, name, seconds, seed):
    """Runs one scenario. Returns "ok", "skip" or "FAILED"."""
    run = Run(args, name, seconds, seed)
    wrong = ["interrupted"]
    try:
        print(f"{name}: {seconds:.0f} s, seed {seed}", flush=True)
        reason = run.place.open()
        if reason:
            print(f"SKIP: chaos/{name}: {run.place.name}: {reason}")
            wrong = []
            return "skip"
        wrong = run.run()
        for text in wrong:
            print(f"  FAILED {name}: {text}")
        if wrong:
            show_end(run.folder)
            again = [sys.argv[0], args.build, "--seconds", f"{seconds:.0f}", "--seed", str(seed), "--scenario", name,
                     "--max-bytes", str(args.max_bytes), "--pace", str(args.pace),
                     *(["--only", args.only] if args.only else [])]
            print(f"  logs: {run.folder}\n  again: {shlex.join(again)}", flush=True)
        return "FAILED" if wrong else "ok"
    finally:
        run.close(bool(wrong) or args.keep)


def show_end(folder):
    with open(os.path.join(folder, "hvdrun.log"), encoding="utf-8", errors="replace") as f:
        for line in f.readlines()[-25:]:
            print(f"  | {line.rstrip()}")


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("build", nargs="?", default="build")
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    p.add_argument("--scenario", default="kill", help=", ".join(SCENARIOS) + ", all")
    p.add_argument("--np", type=int, default=4)
    p.add_argument("--min", type=int, default=2)
    p.add_argument("--max", type=int, default=6)
    p.add_argument("--max-bytes", type=int, default=16 << 20)
    p.add_argument("--pace", type=int, default=2, help="milliseconds of rest in each step")
    p.add_argument("--sets", type=int, choices=(0, 1), help="every other burst in a set; else by the seed")
    p.add_argument("--places", type=int, choices=(0, 1), help="the job keeps places; else by the seed")
    p.add_argument("--only", help="KIND:DTYPE:in|out:COUNT:LENGTH: steps of these operations alone, to find a fault")
    p.add_argument("--keep", action="store_true", help="the logs, also when all is well")
    args = p.parse_args()
    names = list(SCENARIOS) if args.scenario == "all" else args.scenario.split(",")
    unknown = [n for n in names if n not in SCENARIOS]
    if unknown:
        p.error(f"no scenario {unknown[0]}; there are {', '.join(SCENARIOS)} and all")
    return args, names


def main():
    args, names = parse()
    print(f"chaos: seed {args.seed}", flush=True)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(143))
    jobs.adopt_orphans()
    ends = []
    # Long runs repeat the scenarios, so that no job lives longer than ten minutes.
    rounds = max(1, round(args.seconds / len(names) / 600))
    for i in range(rounds):
        for k, name in enumerate(names):
            seed = args.seed if rounds * len(names) == 1 else (args.seed + 7919 * (i * len(names) + k)) % (1 << 31)
            ends.append(one(args, name, args.seconds / len(names) / rounds, seed))
    print(f"chaos: {ends.count('ok')} ok, {ends.count('FAILED')} failed, {ends.count('skip')} skipped, seed {args.seed}")
    if "FAILED" in ends:
        return 1
    return 0 if "ok" in ends else 77


if __name__ == "__main__":
    sys.exit(main())
