#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The checker of chaos runs with units (replicas.py): a correct history, in which one rank is killed and replaced, and the
same history with one violation each, which must be found and named."""
import json
import os
import sys
import tempfile
import types
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import replicas  # noqa: E402

REPLICAS, STAGES, STEPS = 2, 3, 9
LOST, BACK = 3, 6  # replica 0 loses its last rank in one step, and is whole again before the other one


def values():
    found = replicas.serial(STAGES)
    return [next(found) for _ in range(STEPS)]


def world(step, epoch, place, rank, size, new=0):
    return {"t": "world", "ms": 1, "step": step, "e": epoch, "rank": rank, "size": size, "place": place, "new": new}


def value(step, place):
    return {"t": "value", "ms": 2, "step": step, "place": place, "value": values()[step][place % STAGES]}


def state(step, place):
    return {"t": "state", "ms": 3, "step": step, "value": values()[step - 1][place % STAGES]}


def start(armed=""):
    return {"t": "start", "ms": 0, "armed": armed}


def end(place):
    return {"t": "end", "ms": 9, "step": STEPS, "place": place, "value": values()[-1][place % STAGES]}


def life(place):
    """A rank that is there from the beginning to the end."""
    rows = [start(), world(0, 1, place, place, 6)] + [value(s, place) for s in range(LOST)]
    if place < STAGES:
        rows += [{"t": "dead", "ms": 4, "step": LOST, "place": place}, world(LOST, 2, place, place, 5),
                 {"t": "dead", "ms": 4, "step": LOST, "place": place}, world(LOST, 3, place, place, 6), state(BACK, place)]
    else:
        rows += [value(LOST, place), world(LOST, 2, place, place - 1, 5)]
        rows += [value(s, place) for s in range(LOST + 1, BACK)] + [world(BACK, 3, place, place, 6)]
    return rows + [value(s, place) for s in range(BACK, STEPS)] + [end(place)]


class History(unittest.TestCase):
    def setUp(self):
        self.lives = {f"{p}-a": life(p) for p in range(6) if p != 2}
        self.lives["2-a"] = [start(), world(0, 1, 2, 2, 6)] + [value(s, 2) for s in range(LOST)]
        self.lives["2-b"] = [start(), world(0, 3, 2, 2, 6, 1), state(BACK, 2)]
        self.lives["2-b"] += [value(s, 2) for s in range(BACK, STEPS)] + [end(2)]
        self.events = [{"t": "kill", "ms": 4, "uids": ["2-a"]}]

    def check(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, rows in {**self.lives, "events": self.events}.items():
                with open(os.path.join(folder, f"{name}.jsonl"), "w", encoding="utf-8") as f:
                    f.writelines(json.dumps(row) + "\n" for row in rows)
            program = types.SimpleNamespace(replicas=REPLICAS, stages=STAGES)
            return replicas.Check(program).run(folder).violations

    def found(self, *rules):
        self.assertEqual({what for what, _ in self.check()}, set(rules))

    def rows(self, uid, kind):
        return [row for row in self.lives[uid] if row["t"] == kind]

    def test_correct(self):
        self.assertEqual(self.check(), [])

    def test_wrong_value(self):
        self.rows("4-a", "value")[4]["value"] += 1
        self.found("value")

    def test_wrong_value_at_the_end(self):
        self.rows("1-a", "end")[0]["value"] += 1
        self.found("value")

    def test_step_left_out(self):
        self.lives["0-a"].remove(self.rows("0-a", "value")[5])
        self.found("steps")

    def test_step_twice(self):
        rows = self.lives["3-a"]
        at = rows.index(self.rows("3-a", "value")[2])
        rows.insert(at, dict(rows[at]))
        self.found("steps")

    def test_state_of_another_step(self):
        self.rows("2-b", "state")[0]["step"] -= 1
        self.found("steps")

    def test_joiner_without_state(self):
        self.lives["2-b"].remove(self.rows("2-b", "state")[0])
        self.found("steps")

    def test_step_done_by_no_rank(self):
        for uid in ("4-a", "1-a"):
            self.lives[uid] = [r for r in self.lives[uid] if r["t"] != "value" or r["step"] != BACK - 1]
        self.assertIn("steps", {what for what, text in self.check() if text.startswith("stage 1")})

    def test_place_of_two_ranks(self):
        self.rows("0-a", "world")[0]["place"] = 1
        self.assertIn("places", {what for what, _ in self.check()})

    def test_place_changes(self):
        self.rows("5-a", "world")[2]["place"] = 4
        self.assertIn("places", {what for what, _ in self.check()})

    def test_dead_without_a_fault(self):
        rows = self.lives["4-a"]
        rows.insert(rows.index(self.rows("4-a", "value")[7]), {"t": "dead", "ms": 4, "step": 7, "place": 4})
        self.found("dead")

    def test_dead_again(self):
        rows = self.lives["0-a"]
        rows.insert(rows.index(self.rows("0-a", "value")[4]), {"t": "dead", "ms": 4, "step": 7, "place": 0})
        self.found("dead")

    def test_end_without_a_fault(self):
        del self.events[0]
        self.assertIn("end", {what for what, _ in self.check()})

    def test_an_error(self):
        self.lives["4-a"][-1] = {"t": "fail", "ms": 9, "step": 9, "what": "a step", "rc": -5, "text": "x"}
        self.found("end")

    def test_another_last_step(self):
        self.rows("4-a", "end")[0]["step"] -= 1
        self.found("end", "steps")

    def test_a_place_is_missing_at_the_end(self):
        self.lives["4-a"].pop()
        self.found("end")


if __name__ == "__main__":
    unittest.main()
