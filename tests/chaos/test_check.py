#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The checker of chaos runs: a correct history, and the same history with one violation each, which must be found and
named."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402

EVERY, STEPS = 3, 12


def op(step, number, epoch, kind, do, n, sets, **more):
    row = {"t": "op", "ms": 5, "step": step, "op": number, "burst": number, "e": epoch, "name": f"t.{number}",
           "kind": kind, "dtype": "float64", "do": do, "n": n, "in_place": 0, "rc": 0,
           "hash": f"{step:08x}{number:08x}", "sets": sets, "bad": 0}
    row.update(more)
    return row


def world(step, rc, epoch, rank, size, joined=0, left=0, new=0):
    return {"t": "world", "ms": 6, "step": step, "rc": rc, "e": epoch, "rank": rank, "size": size, "source": 0,
            "joined": joined, "left": left, "new": new, "repair_ns": 0, "state": "0" if new else f"s{step}"}


def operations(step, epoch, size):
    """The rows of one step. In step 4 rank 2 dies in the first operation: some elements have its part, some do not."""
    full, root = (1 << size) - 1, (step + 2) % size
    part = 0b011 if (step, epoch) in ((4, 1), (5, 1)) else full
    first = [[full, 1, 6], [part, 1, 4]] if step == 4 else [[part, 1, 10]]
    dead = part != full and root == 2
    return [op(step, 0, epoch, "allreduce", "sum", 10, first),
            op(step, 1, epoch, "allreduce", "average", 4, [[part, check.bits(part), 4]]),
            op(step, 2, epoch, "broadcast", "sum", 3, [] if dead else [[1 << root, 1, 3]],
               rc=check.EOWNERDEAD if dead else 0),
            op(step, 3, epoch, "allgather", "sum", 2, [[part, 1, 7]]),
            op(step, 4, epoch, "allreduce", "max", 10, []),
            op(step, 5, epoch, "barrier", "sum", 0, [])]


def step_rows(step, epoch, size):
    ops = operations(step, epoch, size)
    return [{"t": "step", "ms": 4, "step": step, "ops": len(ops)}, *ops,
            {"t": "stop", "ms": 5, "step": step, "stop": int(step == STEPS - 1)}]


def survivor(uid, rank):
    rows = [{"t": "start", "ms": 1, "uid": uid, "pid": 1, "seed": 1, "armed": ""},
            {**world(0, 0, 1, rank, 3), "state": "0"}]
    for step in range(STEPS):
        epoch, size = (1, 3) if step < 6 else (2, 2) if step < 9 else (3, 3)
        rows += step_rows(step, epoch, size)
        if step == 5:
            rows.append(world(6, 1, 2, rank, 2, left=1))
        elif step == 8:
            rows.append(world(9, 1, 3, rank, 3, joined=1))
            rows.append({"t": "state", "ms": 7, "step": 9, "root": 0, "state": "s9"})
        elif step % EVERY == EVERY - 1:
            rows.append(world(step + 1, 0, epoch, rank, size))
    return rows + [{"t": "end", "ms": 9, "step": STEPS, "state": "s12"}]


def killed(uid):
    rows = [{"t": "start", "ms": 1, "uid": uid, "pid": 1, "seed": 1, "armed": ""},
            {**world(0, 0, 1, 2, 3), "state": "0"}]
    for step in range(4):
        rows += step_rows(step, 1, 3)
        if step == 2:
            rows.append(world(3, 0, 1, 2, 3))
    return rows + step_rows(4, 1, 3)[:1]


def joiner(uid):
    rows = [{"t": "start", "ms": 1, "uid": uid, "pid": 1, "seed": 1, "armed": ""},
            world(0, 0, 3, 2, 3, joined=1, new=1),
            {"t": "state", "ms": 7, "step": 9, "root": 0, "state": "s9"}]
    for step in range(9, STEPS):
        rows += step_rows(step, 3, 3)
    return rows + [world(STEPS, 0, 3, 2, 3), {"t": "end", "ms": 9, "step": STEPS, "state": "s12"}]


def history():
    lives = {"1-a": survivor("1-a", 0), "2-b": survivor("2-b", 1), "3-c": killed("3-c"), "4-d": joiner("4-d")}
    return lives, [{"t": "kill", "ms": 5, "uids": ["3-c"]}]


def verdict(lives, events):
    with tempfile.TemporaryDirectory() as folder:
        for uid, rows in lives.items():
            with open(os.path.join(folder, uid + ".jsonl"), "w", encoding="utf-8") as f:
                f.writelines(json.dumps(row) + "\n" for row in rows)
        with open(os.path.join(folder, "events.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in events)
        return check.check(folder)


class Planted(unittest.TestCase):
    def setUp(self):
        self.lives, self.events = history()

    def find(self, uid, kind, step, number=None):
        return next(r for r in self.lives[uid] if r["t"] == kind and r["step"] == step and
                    (number is None or r["op"] == number))

    def everywhere(self, kind, step, number, **change):
        for uid in self.lives:
            for row in self.lives[uid]:
                if row["t"] == kind and row["step"] == step and row.get("op") == number:
                    row.update(change)

    def found(self, what):
        done = verdict(self.lives, self.events)
        self.assertIn(what, {w for w, _ in done.violations}, done.violations)

    def test_all_is_well(self):
        done = verdict(self.lives, self.events)
        self.assertEqual(done.violations, [])
        self.assertEqual((len(done.lives), len(done.steps), len(done.members)), (4, STEPS, 3))
        self.assertEqual(done.lost, {"3-c": 1})

    def test_a_line_half_written_is_the_end(self):
        with tempfile.TemporaryDirectory() as folder:
            for uid, rows in self.lives.items():
                with open(os.path.join(folder, uid + ".jsonl"), "w", encoding="utf-8") as f:
                    f.writelines(json.dumps(row) + "\n" for row in rows)
                    f.write('{"t": "op", "st' if uid == "3-c" else "")
            with open(os.path.join(folder, "events.jsonl"), "w", encoding="utf-8") as f:
                f.writelines(json.dumps(row) + "\n" for row in self.events)
            program = [sys.executable, check.__file__, folder]
            done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            with open(os.path.join(folder, "4-d.jsonl"), "a", encoding="utf-8") as f:
                f.write("garbage\n")
            done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn("not a line of a record", done.stderr)

    # I1

    def test_two_members_with_one_rank(self):
        for row in self.lives["2-b"]:
            if row["t"] == "world" and row["e"] == 2:
                row["rank"] = 0
        self.found("I1")

    def test_two_sizes_of_one_epoch(self):
        for row in self.lives["2-b"]:
            if row["t"] == "world" and row["e"] == 2:
                row["size"], row["left"] = 3, 0
        self.found("I1")

    def test_a_rank_beyond_the_size(self):
        self.find("1-a", "world", 0)["rank"] = 3
        self.found("I1")

    def test_joined_and_left_do_not_add_up(self):
        for uid in ("1-a", "2-b"):
            self.find(uid, "world", 9)["joined"] = 0
        self.found("I1")

    # I2

    def test_an_epoch_falls(self):
        self.find("1-a", "world", 12)["e"] = 2
        self.found("I2")

    def test_an_epoch_rises_unsaid(self):
        for uid in ("1-a", "2-b"):
            self.find(uid, "world", 6)["rc"] = 0
        self.found("I2")

    def test_an_operation_of_another_epoch(self):
        self.everywhere("op", 7, 0, e=1)
        self.found("I2")

    # I3

    def test_another_result(self):
        self.find("2-b", "op", 7, 0)["hash"] = "ff"
        self.found("I3")

    def test_a_result_on_one_and_an_error_on_the_other(self):
        self.find("2-b", "op", 7, 2)["rc"] = check.EOWNERDEAD
        self.found("I3")

    def test_the_killed_one_had_another_result(self):
        self.find("3-c", "op", 3, 1)["hash"] = "ff"
        self.found("I3")

    def test_other_contributors(self):
        self.find("2-b", "op", 4, 0)["sets"] = [[7, 1, 5], [3, 1, 5]]
        self.found("I3")

    def test_no_agreement_about_the_end(self):
        self.find("2-b", "stop", 7)["stop"] = 1
        self.found("I3")

    def test_boundaries_differ(self):
        self.find("2-b", "world", 9)["left"] = 1
        self.found("boundary")

    # sums, contributors, averages

    def test_an_element_that_names_nobody(self):
        self.find("1-a", "op", 7, 0).update(bad=1, at=3, value="17")
        self.found("sum")

    def test_elements_that_are_not_told(self):
        self.everywhere("op", 7, 0, sets=[[3, 1, 9]])
        self.found("sum")

    def test_nobody_contributed(self):
        self.everywhere("op", 7, 3, sets=[])
        self.found("sum")

    def test_a_stranger_contributed(self):
        self.everywhere("op", 7, 0, sets=[[7, 1, 10]])
        self.found("set")

    def test_a_contribution_is_lost(self):
        self.everywhere("op", 7, 0, sets=[[1, 1, 10]])
        self.found("set")

    def test_some_elements_lack_a_contribution(self):
        self.everywhere("op", 7, 0, sets=[[3, 1, 9], [2, 1, 1]])
        self.found("set")

    def test_sets_that_are_not_nested(self):
        self.everywhere("op", 10, 0, sets=[[5, 1, 5], [6, 1, 5]])
        self.found("set")

    def test_the_dead_contribute_again(self):
        self.everywhere("op", 5, 0, sets=[[7, 1, 10]])
        self.found("dead")

    def test_the_dead_are_members_again(self):
        self.lives["3-c"].append(world(6, 1, 2, 2, 3, left=0))
        self.found("dead")

    def test_an_average_divided_by_the_old_number(self):
        self.everywhere("op", 5, 1, sets=[[3, 3, 4]])
        self.found("average")

    def test_a_broadcast_of_another_root(self):
        self.everywhere("op", 7, 2, sets=[[1, 1, 3]])
        self.everywhere("op", 6, 2, sets=[[2, 1, 3]])
        self.found("sum")

    def test_a_root_that_lives_is_said_to_be_dead(self):
        self.everywhere("op", 7, 2, sets=[], rc=check.EOWNERDEAD)
        self.found("root")

    # steps, states, ends

    def test_a_step_is_lost(self):
        self.lives["2-b"] = [r for r in self.lives["2-b"] if r.get("step") != 7]
        self.found("steps")

    def test_a_step_is_lost_everywhere(self):
        for uid, rows in self.lives.items():
            self.lives[uid] = [r for r in rows if r.get("step") != 7]
        self.found("steps")

    def test_a_step_is_repeated(self):
        again = [r for r in self.lives["2-b"] if r.get("step") == 7]
        at = self.lives["2-b"].index(again[-1]) + 1
        self.lives["2-b"][at:at] = again
        self.found("steps")

    def test_an_operation_is_lost(self):
        self.lives["2-b"].remove(self.find("2-b", "op", 7, 4))
        self.found("steps")

    def test_an_operation_is_repeated(self):
        at = self.lives["2-b"].index(self.find("2-b", "op", 7, 4))
        self.lives["2-b"].insert(at, dict(self.lives["2-b"][at]))
        self.found("steps")

    def test_a_joiner_begins_too_late(self):
        self.lives["4-d"] = [r for r in self.lives["4-d"] if r["t"] == "state" or r.get("step") != 9]
        self.found("steps")

    def test_a_joiner_without_state(self):
        self.lives["4-d"] = [r for r in self.lives["4-d"] if r["t"] != "state"]
        self.found("steps")

    def test_a_joiner_with_another_state(self):
        self.find("4-d", "state", 9)["state"] = "s8"
        self.found("state")

    def test_states_that_part(self):
        self.find("2-b", "world", 6)["state"] = "x"
        self.found("state")

    def test_an_end_without_a_cause(self):
        self.events.clear()
        self.found("end")

    def test_a_failure_without_a_cause(self):
        self.lives["2-b"][-1] = {"t": "fail", "ms": 9, "step": 12, "what": "t.0", "rc": -104, "text": "lost"}
        self.found("end")

    def test_a_failure_of_one_that_was_stopped(self):
        self.lives["2-b"][-1] = {"t": "fail", "ms": 9, "step": 12, "what": "t.0", "rc": -104, "text": "lost"}
        self.events.append({"t": "stop", "ms": 8, "uids": ["2-b"]})
        self.assertEqual(verdict(self.lives, self.events).violations, [])

    def test_all_began_anew(self):
        rows = [{**r, "e": 4, "rank": 0, "size": 1} if r["t"] == "world" else r for r in survivor("5-e", 0)[:9]]
        self.lives["5-e"] = rows
        self.found("reset")

    def test_an_error_before_an_end_with_a_cause(self):
        at = self.lives["2-b"].index(self.find("2-b", "op", 7, 3))
        rows = self.lives["2-b"][:at] + [op(7, 3, 2, "allgather", "sum", 2, [], rc=-71, hash="0")]
        self.lives["2-b"] = rows + [{"t": "fail", "ms": 9, "step": 7, "what": "t.3", "rc": -71, "text": "no"}]
        # The rest of the history has rank 2 as a member: only the finding on step 7 matters here.
        done = verdict(self.lives, self.events + [{"t": "stop", "ms": 8, "uids": ["2-b"]}])
        self.assertNotIn("I3", {w for w, text in done.violations if "step 7" in text})

    def test_no_broadcast_and_a_dead_root(self):
        self.everywhere("op", 7, 0, rc=check.EOWNERDEAD, sets=[])
        self.found("root")

    def test_ends_that_differ(self):
        self.lives["2-b"][-1]["state"] = "x"
        self.found("end")

    def test_nobody_ends(self):
        for uid, rows in self.lives.items():
            self.lives[uid] = [r for r in rows if r["t"] != "end"]
        self.events.append({"t": "kill", "ms": 9, "uids": list(self.lives)})
        self.found("end")


if __name__ == "__main__":
    unittest.main()
