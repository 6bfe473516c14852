# SPDX-License-Identifier: Apache-2.0
"""Replicas in a chaos run: the program stages.c, faults of one replica at a time, and the check of its records.

Faults hit a replica only while all others are whole, so that for each stage some rank has the state. Joiners take the places
that are free, and may be hit before their replica is whole.

What must hold: each value that a rank has computed is the one of a job without faults; each rank does its steps one after the
other, from the one that it was given; each step of each stage was done by some rank; a place has one rank in an epoch; a
rank is dead (-EOWNERDEAD) no more often than its replica was hit; at the end all places have done the same steps."""
import json
import os
import time

import nemesis

PRIME = 999983
PHASES = ("report", "install", "connect", "settle", "change", "set connect", "view", "resubmit", "revoke")
SETTLING = 60  # seconds until all replicas are whole again


def serial(stages):
    """Yields the values of all stages after each step, in a job without faults."""
    values, step = [s + 1 for s in range(stages)], 0
    while True:
        pairs = [values[s] + values[s + 1] for s in range(stages - 1)]
        passed = [0] * (stages - 1) + [values[0]]
        values = [(values[s] * 31 + (pairs[s - 1] if s else 0) + (pairs[s] if s < stages - 1 else 0) + passed[s] + s + step)
                  % PRIME for s in range(stages)]
        yield values
        step += 1


# ---- faults ---------------------------------------------------------------------------------------


def living(run):
    return [w for w in run.job.workers.values() if w.alive() and not w.ended]


def weak(run):
    """Replicas that are not whole, or have a rank that is going to end itself."""
    stages, replicas = run.program.stages, run.program.replicas
    sound = {w.place for w in run.job.working() if not w.dead and not w.armed}
    return [r for r in range(replicas) if not sound.issuperset(range(r * stages, (r + 1) * stages))]


def targets(run):
    """The ranks that may be hit now. Joiners that are not admitted belong to the replica that is not whole."""
    found = weak(run)
    if len(found) > 1:
        return []
    replica = found[0] if found else run.random.randrange(run.program.replicas)
    return [w for w in living(run) if (w.place is None and found) or
            (w.place is not None and w.place // run.program.stages == replica)]


def hit(run, count):
    able = targets(run)
    return nemesis.strike(run, run.random.sample(able, min(count, len(able)))) if able else None


def kill(run):
    return hit(run, 1)


def kill_two(run):
    return hit(run, 2)


def kill_all(run):
    return hit(run, run.program.stages)


def kill_soon_after(run):
    able = targets(run)
    if len(able) < 2:
        return None
    first, second = run.random.sample(able, 2)
    run.later(run.random.uniform(0.0005, 0.02), lambda: run.tell(nemesis.strike(run, [second])))
    return nemesis.strike(run, [first])


ACTS = [(0.3, kill), (0.12, kill_two), (0.05, kill_all), (0.1, kill_soon_after), (0.13, nemesis.kill_joiner),
        (0.15, nemesis.arming(PHASES)), (0.15, nemesis.nothing)]
SCENARIOS = {"units": (ACTS, None, (0.1, 1.6)), "units_hosts": (ACTS, "hosts", (0.1, 1.6))}


# ---- the program ------------------------------------------------------------------------------------


class Stages:
    """stages.c: two replicas of three stages, or three of two."""

    def __init__(self, args, seed):
        self.replicas, self.stages = (2, 3) if seed % 2 else (3, 2)
        args.np = args.max = self.replicas * self.stages
        args.min = args.np - self.stages
        self.args, self.seed = args, seed

    def argv(self, build, records):
        return [os.path.join(build, "tests", "chaos", "stages"), records, "--replicas", str(self.replicas), "--stages",
                str(self.stages), "--seed", str(self.seed), "--pace", str(self.args.pace)]

    def options(self):
        """A lost rank is replaced after a second, each time. Nothing else may change the number of ranks: if there were too
        many, those with the highest places would be asked to leave."""
        return ["--keep-places", "--blacklist-cooldown-range", "1", "1"]

    def settle(self, run):
        """Lets all replicas become whole. Returns what is wrong."""
        deadline = time.monotonic() + SETTLING
        while len([w for w in run.job.working() if not w.dead]) < self.args.np:
            run.moves()
            run.due()
            if time.monotonic() > deadline:
                return f"replicas {weak(run)} are not whole again within {SETTLING} s"
            time.sleep(0.05)
        return None

    def check(self, records):
        return Check(self).run(records)


# ---- the check --------------------------------------------------------------------------------------


class Life:
    """One rank's record."""

    def __init__(self, path):
        self.uid = os.path.basename(path).removesuffix(".jsonl")
        with open(path, encoding="utf-8") as f:
            self.rows = [json.loads(line) for line in f if line.endswith("\n")]
        self.armed = any(row["t"] == "start" and row["armed"] for row in self.rows)
        self.place = next((row["place"] for row in self.rows if row["t"] == "world"), None)
        self.last = self.rows[-1]["t"] if self.rows else "nothing"


class Check:
    """Has what chaos.py needs of check.Checker."""

    def __init__(self, program):
        self.program, self.serial, self.expected = program, serial(program.stages), []
        self.violations, self.count = [], 0
        self.events, self.members, self.lives = [], {}, []
        self.done = [set() for _ in range(program.stages)]  # steps
        self.values = self.dead = 0

    def say(self, what, text):
        self.count += 1
        self.violations.append((what, text))

    def value(self, step, stage):
        while len(self.expected) <= step:
            self.expected.append(next(self.serial))
        return self.expected[step][stage]

    def world(self, life, row):
        members = self.members.setdefault(row["e"], {})
        if members.setdefault(row["place"], life.uid) != life.uid:
            self.say("places", f"{life.uid} has place {row['place']} in epoch {row['e']}, as {members[row['place']]}")
        if row["place"] != life.place:
            self.say("places", f"{life.uid} had place {life.place}, and has {row['place']} in epoch {row['e']}")

    def life(self, life):
        """Returns how often the rank has become dead."""
        stage, following, dead, times = (life.place or 0) % self.program.stages, 0, False, 0
        for row in life.rows:
            if row["t"] == "world":
                self.world(life, row)
            elif row["t"] == "state":
                following = row["step"]
            elif row["t"] == "end" and row["step"] != following:
                self.say("steps", f"{life.uid} ends at step {row['step']} where {following} was to come")
            elif row["t"] == "dead":
                times += not dead
                dead = True
                self.dead += 1
            elif row["t"] == "value":
                dead = False
                if row["step"] != following:
                    self.say("steps", f"{life.uid}: step {row['step']} where {following} was to come")
                if row["value"] != self.value(row["step"], stage):
                    self.say("value", f"{life.uid}: place {life.place} has {row['value']} after step {row['step']}, not "
                                      f"{self.value(row['step'], stage)}")
                following = row["step"] + 1
                self.done[stage].add(row["step"])
                self.values += 1
        return times

    def how_it_ended(self, life, hit):
        row = life.rows[-1] if life.rows else {}
        if life.last == "fail":
            self.say("end", f"{life.uid}: {row['what']}: {row['text']} ({row['rc']})")
        elif life.last not in ("end", "left") and not hit:
            self.say("end", f"{life.uid}: place {life.place} ended by itself after {life.last} of step {row.get('step')}")

    def ends(self):
        ends = {life.place: life.rows[-1] for life in self.lives if life.last == "end"}
        steps = {row["step"] for row in ends.values()}
        if len(ends) != self.program.replicas * self.program.stages or len(steps) != 1:
            self.say("end", f"places {sorted(ends)} came to the end, at steps {sorted(steps)}")
            return
        last = steps.pop()
        for place, row in ends.items():
            if last and row["value"] != self.value(last - 1, place % self.program.stages):
                self.say("value", f"place {place} ends with {row['value']} after {last} steps")
        for stage, done in enumerate(self.done):
            if done != set(range(last)):
                self.say("steps", f"stage {stage}: {len(done)} steps of {last} were done")

    def run(self, folder):
        names = sorted(n for n in os.listdir(folder) if n.endswith(".jsonl"))
        self.lives = [Life(os.path.join(folder, n)) for n in names if n != "events.jsonl"]
        if "events.jsonl" in names:
            with open(os.path.join(folder, "events.jsonl"), encoding="utf-8") as f:
                self.events = [json.loads(line) for line in f if line.endswith("\n")]
        killed = {uid for event in self.events for uid in event["uids"]}
        hits, dead = [0] * self.program.replicas, []
        for life in self.lives:
            hit = life.uid in killed or life.armed
            self.how_it_ended(life, hit)
            dead.append((life, self.life(life)))
            if hit and life.place is not None:
                hits[life.place // self.program.stages] += 1
        for life, times in dead:
            if times and times > hits[life.place // self.program.stages]:
                self.say("dead", f"{life.uid}: place {life.place} was dead {times} times, its replica was hit "
                                 f"{hits[life.place // self.program.stages]} times")
        self.ends()
        return self if self.lives else None

    def summary(self):
        return (f"{self.program.replicas} replicas of {self.program.stages}: {len(self.lives)} lives, {len(self.expected)} steps, "
                f"{self.values} values, {self.dead} failed steps, {len(self.members)} epochs seen, "
                f"{sum(1 for life in self.lives if life.armed)} armed; nemesis: {len(self.events)} events")
