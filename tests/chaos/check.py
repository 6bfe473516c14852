#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the records of the workers of a chaos run.

    check.py DIR

DIR/UID.jsonl is the record of one worker (record.h); DIR/events.jsonl has the faults that the nemesis caused and
the workers concerned. Lines of a record, in order; "ms" is CLOCK_MONOTONIC:

    start   uid, pid, seed, armed (the phase of a repair in which it ends itself, or "")
    hello   rank: hvd_init() has returned, with a joiner's place or a member's world
    world   step (the next one), rc of hvd_commit, e (epoch), rank, size, source, joined, left, new, state
    state   step, root, state: the worker has received it, or sent it
    step    step, ops: so many operations follow
    op      step, op, burst, e, name, kind, dtype, do, n, in_place, rc, hash, bad (elements that name no
            set of ranks), sets ([mask, divisor, elements]): the contributors. Operations of a burst are
            in flight together; a burst begins when the one before it has returned
    doom    step, op, us: the worker ends itself after so many microseconds
    stop    step, stop: what all ranks agreed on at the end of the step
    end, left, fail (what, rc, text)   the last line, unless it was killed

What must hold (core/engine/REPAIR.md): I1 one list of members an epoch; I2 epochs only rise; I3 what one
rank returned for an operation, every rank returned; every element of a sum is exact and names its
contributors: they are members, include each rank that returned the operation, and, within a tensor, one set within
the other; a rank that is missing once never reappears; an average is divided by its contributors; every worker
did every step from its first to its last, once; no worker ended that was not made to end.

Exit code 0: everything holds; 1: violations, which are printed; 2: nothing to check."""
import heapq
import json
import os
import resource
import sys

EOWNERDEAD = -130
MOST_SAID = 40


class Broken(Exception):
    """A file that is no worker's record."""


class Life:
    """One worker's file, read a step at a time. head: the lines before its first step."""

    def __init__(self, path):
        self.path = path
        self.uid = os.path.basename(path).removesuffix(".jsonl")
        self.armed, self.last, self.worlds, self.rank = "", None, 0, None
        self.epoch = self.size = self.next_step = None
        self.anew = False  # member of a second story, which began when no member was left: not checked
        self.source = self.read()

    def read(self):
        with open(self.path, "rb") as f:
            for number, line in enumerate(f, 1):
                if not line.endswith(b"\n"):
                    return  # killed during the write
                try:
                    row = json.loads(line)
                    row["t"], row["ms"]
                except (ValueError, KeyError, TypeError):
                    raise Broken(f"{self.path}:{number}: not a line of a record") from None
                if row["t"] == "doom":
                    self.armed = "doom"
                self.last = row
                yield row

    def chunks(self):
        """Yields (step, uid, life, rows). Lines before the first step have the step -1. The rows of a step begin with
        its line."""
        step, rows = -1, []
        for row in self.source:
            if row["t"] == "step":
                yield step, self.uid, self, rows
                step, rows = row["step"], []
            rows.append(row)
        yield step, self.uid, self, rows


def rank_text(row):
    return f"{row['rank']} of {row['size']}"


def bits(mask):
    return bin(mask).count("1")


class Checker:
    def __init__(self, events=(), first=1):
        """first: the epoch in which the checked story begins."""
        self.first = first
        self.violations, self.count = [], 0
        self.members = {}   # epoch -> {rank: uid}
        self.sizes = {}     # epoch -> size
        self.lost = {}      # uid -> first epoch with a result that lacks this member
        self.missing = (None, 0, 0)  # (epoch, step, burst), ranks missing before that burst and in it
        self.states = {}    # step -> state, of boundaries
        self.events = list(events)
        self.ops = self.results = self.repaired = 0
        self.steps = set()
        self.lives = []

    def say(self, what, text):
        self.count += 1
        if len(self.violations) < MOST_SAID:
            self.violations.append((what, text))

    # ---- one record -----------------------------------------------------------------------

    def world(self, life, row):
        epoch, rank, size, uid = row["e"], row["rank"], row["size"], life.uid
        where = f"{uid} at step {row['step']}"
        if not 0 <= rank < size:
            self.say("I1", f"{where}: rank {rank} of {size}")
        if self.sizes.setdefault(epoch, size) != size:
            self.say("I1", f"{where}: epoch {epoch} has {size} members, another rank sees {self.sizes[epoch]}")
        members = self.members.setdefault(epoch, {})
        if members.setdefault(rank, uid) != uid:
            self.say("I1", f"{where}: rank {rank} of epoch {epoch} is {members[rank]} as well")
        if any(u == uid and r != rank for r, u in members.items()):
            self.say("I1", f"{where}: has two ranks in epoch {epoch}")
        if life.epoch is not None:
            self.passage(life, row, where)
        life.epoch, life.rank, life.size = epoch, rank, size
        life.worlds += 1

    def passage(self, life, row, where):
        """Checks a new world: a worker enters it at a boundary."""
        if row["e"] < life.epoch:
            self.say("I2", f"{where}: epoch {row['e']} after {life.epoch}")
        changed = (row["rank"], row["size"]) != (life.rank, life.size)
        if row["rc"] == 0 and row["e"] == life.epoch and not changed:
            return
        if row["e"] == life.epoch or (row["rc"] == 0 and changed):
            self.say("I2", f"{where}: hvd_commit returned {row['rc']}, epoch {life.epoch} became {row['e']}, "
                           f"rank {life.rank} of {life.size} became {rank_text(row)}")
        if row["rc"] == 1 and row["size"] != life.size + row["joined"] - row["left"]:
            self.say("I1", f"{where}: {life.size} ranks, {row['joined']} joined, {row['left']} left: {row['size']}")

    def head(self, life, rows):
        given = None
        for row in rows:
            if row["t"] == "start":
                life.armed = row["armed"]
            elif row["t"] == "world":
                if row["e"] > self.first and not row["new"]:
                    self.say("reset", f"{life.uid}: began anew in epoch {row['e']}: no rank was left with the state")
                    life.anew = True
                    return
                self.world(life, row)
                life.next_step = -1 if row["new"] else row["step"]
            elif row["t"] == "state":
                given = row
                life.next_step = row["step"]
        if given:
            self.same_state(life.uid, given)

    def same_state(self, uid, row):
        if self.states.setdefault(row["step"], row["state"]) != row["state"]:
            self.say("state", f"{uid} at step {row['step']}: state {row['state']}, "
                              f"another rank has {self.states[row['step']]}")

    def complete(self, life, rows):
        """Each operation of a step must be there once, and steps must follow each other."""
        begin, step = rows[0], rows[0]["step"]
        if life.next_step is not None and step != life.next_step:
            self.say("steps", f"{life.uid}: step {step} where {life.next_step} was to come")
        seen = [row["op"] for row in rows if row["t"] == "op"]
        if len(set(seen)) != len(seen):
            self.say("steps", f"{life.uid}: step {step}: an operation twice")
        over = any(row["t"] == "stop" for row in rows)
        if over and sorted(seen) != list(range(begin["ops"])):
            self.say("steps", f"{life.uid}: step {step}: {len(seen)} of {begin['ops']} operations")
        life.next_step = step + 1 if over else -1

    # ---- one step, all records --------------------------------------------------------------

    def agree(self, what, step, rows, keys):
        """rows: (life, row) of all ranks. The values of these keys must be equal in all rows."""
        for key in keys:
            first_life, first = rows[0]
            for life, row in rows[1:]:
                if row[key] != first[key]:
                    self.say(what, f"step {step}: {key} is {row[key]} on {life.uid}, "
                                   f"{first[key]} on {first_life.uid} ({row['t']} {row.get('op', '')})")
                    break

    def step(self, step, parts):
        """parts: (life, rows)."""
        self.steps.add(step)
        by_op, stops, worlds = {}, [], []
        ranks = {life: (life.epoch, self.rank_of(life)) for life, _ in parts}
        for life, rows in parts:
            self.complete(life, rows)
            for row in rows:
                if row["t"] == "op" and row["rc"] not in (0, EOWNERDEAD):
                    pass  # no result: the cause is checked at its line "fail"
                elif row["t"] == "op":
                    by_op.setdefault(row["op"], []).append((life, row))
                elif row["t"] == "stop":
                    stops.append((life, row))
                elif row["t"] == "world":
                    worlds.append((life, row))
        for number in sorted(by_op, key=lambda n: (by_op[n][0][1]["burst"], n)):
            self.operation(step, number, by_op[number], ranks)
        if stops:
            self.agree("I3", step, stops, ["stop"])
        if worlds:
            self.agree("boundary", step, worlds, ["step", "rc", "e", "size", "source", "state"])
            if all(row["rc"] == 1 for _, row in worlds):
                self.agree("boundary", step, worlds, ["joined", "left"])
        self.after(parts)

    def after(self, parts):
        for life, rows in parts:
            for row in rows:
                if row["t"] == "world":
                    self.world(life, row)
                    self.same_state(life.uid, row)
                elif row["t"] == "state":
                    self.same_state(life.uid, row)

    def rank_of(self, life):
        return next((r for r, u in self.members.get(life.epoch, {}).items() if u == life.uid), None)

    def operation(self, step, number, rows, ranks):
        self.ops += 1
        self.results += len(rows)
        self.agree("I3", step, rows, ["rc", "hash", "e", "name", "kind", "dtype", "do", "n", "burst", "sets"])
        where = f"step {step} op {number} ({rows[0][1]['name']})"
        for life, row in rows:
            if row["e"] != life.epoch:
                self.say("I2", f"{where}: {life.uid} is in epoch {life.epoch}, its operation in {row['e']}")
            if row["bad"]:
                self.say("sum", f"{where}: {life.uid}: {row['bad']} elements name no rank,  "
                                f"the first at {row.get('at')}: {row.get('value')}")
        row = rows[0][1]
        returned = 0
        for life, _ in rows:
            if ranks[life][1] is not None:
                returned |= 1 << ranks[life][1]
        if row["kind"] == "broadcast":
            self.broadcast(where, step, number, row, returned)
        else:
            for life, each in rows:
                self.contributors(where, each, returned, life)

    def broadcast(self, where, step, number, row, returned):
        root = (step + number) % self.sizes.get(row["e"], 1)
        if row["rc"] == EOWNERDEAD and returned >> root & 1:
            self.say("root", f"{where}: the root is said to be dead and has returned")
        named = {mask for mask, _, _ in row["sets"]}
        if row["rc"] == 0 and row["n"] and named != {1 << root}:
            self.say("sum", f"{where}: the data is not the root's ({root}): {row['sets']}")

    def contributors(self, where, row, returned, life):
        if row["rc"] != 0:
            self.say("root", f"{where}: {life.uid}: the operation is no broadcast, but it returned EOWNERDEAD")
        if row["kind"] == "barrier" or row["do"] in ("min", "max") or row["n"] == 0:
            return
        masks = sorted({mask for mask, _, _ in row["sets"]}, key=bits)
        everybody = (1 << self.sizes.get(row["e"], 0)) - 1
        if not masks:
            self.say("sum", f"{where}: {life.uid}: no rank contributed")
        if row["kind"] == "allreduce" and sum(n for _, _, n in row["sets"]) + row["bad"] != row["n"]:
            self.say("sum", f"{where}: {life.uid}: elements are missing from its sets")
        for mask, divisor, _ in row["sets"]:
            if row["do"] == "average" and divisor != bits(mask):
                self.say("average", f"{where}: {bits(mask)} ranks contributed, divided by {divisor}")
            if mask & ~everybody:
                self.say("set", f"{where}: contributors {mask:b} of {everybody:b}")
            if returned & ~mask:
                self.say("set", f"{where}: {returned:b} returned it, elements are of {mask:b} alone")
        if any(a & ~b for a, b in zip(masks, masks[1:])):
            self.say("set", f"{where}: sets of contributors that are not one within the other: {row['sets']}")
        self.gone(where, row, masks, everybody)

    def gone(self, where, row, masks, everybody):
        """A rank that is missing once is missing in everything that begins later. A burst begins as a whole."""
        begun = (row["e"], row["step"], row["burst"])
        if self.missing[0] is None or self.missing[0][0] != row["e"]:
            self.missing = (begun, 0, 0)
        last, old, new = self.missing
        if last != begun:
            old |= new
        for mask in masks:
            if mask & old:
                self.say("dead", f"{where}: {mask & old:b} contributed, and was missing before")
            new |= everybody & ~mask
            if mask != everybody:
                self.repaired += 1
                for rank, uid in self.members.get(row["e"], {}).items():
                    if not mask >> rank & 1:
                        self.lost.setdefault(uid, row["e"])
        self.missing = (begun, old, new)

    # ---- everything ---------------------------------------------------------------------------

    def run(self, lives):
        self.lives = lives
        merged = heapq.merge(*(life.chunks() for life in lives), key=lambda c: (c[0], c[1]))
        at, parts = None, []
        for step, _, life, rows in merged:
            if step < 0:
                self.head(life, rows)
            if step < 0 or life.anew:
                continue
            if step != at and parts:
                self.step(at, parts)
                parts = []
            at = step
            parts.append((life, rows))
        if parts:
            self.step(at, parts)
        self.ends()
        return self

    def ends(self):
        if self.steps and len(self.steps) != max(self.steps) + 1:
            missing = set(range(max(self.steps))) - self.steps
            self.say("steps", f"steps that no rank did: {sorted(missing)[:5]}")
        for epoch, members in self.members.items():
            for uid in members.values():
                if self.lost.get(uid, epoch) < epoch:
                    self.say("dead", f"{uid} is in epoch {epoch}, and a result of epoch {self.lost[uid]} is without it")
        touched = {}
        for event in self.events:
            for uid in event.get("uids", []):
                touched.setdefault(uid, set()).add(event["t"])
        ends = []
        for life in (each for each in self.lives if not each.anew):
            last, did = life.last or {"t": "nothing"}, touched.get(life.uid, set())
            if last["t"] == "end":
                ends.append((life, last))
            elif last["t"] == "fail":
                if not did - {"kill"}:
                    self.say("end", f"{life.uid}: {last['what']}: {last['text']} ({last['rc']})")
            elif last["t"] != "left" and "kill" not in did and not life.armed and not did:
                self.say("end", f"{life.uid}: ended by itself after {last['t']} of step {last.get('step')}")
        if ends:
            self.agree("end", ends[0][1]["step"], ends, ["step", "state"])
        else:
            self.say("end", "no rank came to the end")

    def summary(self):
        kinds = {}
        for event in self.events:
            kinds[event["t"]] = kinds.get(event["t"], 0) + 1
        did = ", ".join(f"{n} {t}" for t, n in sorted(kinds.items())) or "nothing"
        return (f"{len(self.lives)} lives, {len(self.steps)} steps, {self.ops} operations, {self.results} results, "
                f"{len(self.members)} epochs seen, {self.repaired} results with ranks missing; nemesis: {did}")


def read_events(path):
    try:
        with open(path, encoding="utf-8") as f:
            return [json.loads(line) for line in f if line.endswith("\n")]
    except FileNotFoundError:
        return []


def check(folder, first=1):
    names = sorted(n for n in os.listdir(folder) if n.endswith(".jsonl") and n != "events.jsonl")
    events = read_events(os.path.join(folder, "events.jsonl"))
    # All records are read side by side.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    lives = [Life(os.path.join(folder, n)) for n in names]
    return Checker(events, first).run(lives) if lives else None


def main():
    if len(sys.argv) != 2:
        print("usage: check.py DIR", file=sys.stderr)
        return 2
    try:
        done = check(sys.argv[1])
    except (Broken, OSError) as error:
        print(f"check: {error}", file=sys.stderr)
        return 2
    if not done:
        print("check: no records", file=sys.stderr)
        return 2
    for what, text in done.violations:
        print(f"VIOLATION {what}: {text}")
    if done.count > len(done.violations):
        print(f"... and {done.count - len(done.violations)} more")
    print(f"check: {done.summary()}")
    print("check: ok" if not done.count else f"check: {done.count} violations")
    return 1 if done.count else 0


if __name__ == "__main__":
    sys.exit(main())
