#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The order in which the test runner starts jobs, how it reads a test's head, and when a lane exceeds its budget."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from runner import report  # noqa: E402
from runner.job import Job, jobs  # noqa: E402
from runner.process import Outcome  # noqa: E402
from runner.schedule import Schedule  # noqa: E402


def job(label, takes=2.0, waiting=False, needs=""):
    return Job(label, [], 1, takes, waiting, needs)


def started(schedule):
    """Labels of all jobs that may start now."""
    labels = []
    while one := schedule.next():
        labels.append(one.label)
    return labels


class Order(unittest.TestCase):
    def test_longest_first_in_each_kind(self):
        schedule = Schedule([job("a", 1), job("b", 9), job("c", 5), job("w", 1, True), job("x", 8, True)], 2, 1)
        self.assertEqual(started(schedule), ["b", "x", "c"])

    def test_a_place_is_free_when_its_job_has_ended(self):
        schedule = Schedule([job("a", 3), job("b", 2), job("w", 1, True)], 1, 1)
        self.assertEqual(started(schedule), ["a", "w"])
        a, w = schedule.running
        schedule.ended(w, True)
        self.assertEqual(started(schedule), [])
        schedule.ended(a, False)
        self.assertEqual(started(schedule), ["b"])

    def test_builds_come_first_and_their_tests_after_them(self):
        schedule = Schedule([job("x/test", 99, needs="x/build"), job("a", 50), job("x/build", 1)], 1, 1)
        self.assertEqual(started(schedule), ["x/build"])
        schedule.ended(schedule.running[0], True)
        self.assertEqual(started(schedule), ["x/test"])

    def test_one_build_at_a_time(self):
        schedule = Schedule([job("x/test", needs="x/build"), job("x/build", 9), job("y/test", needs="y/build"),
                             job("y/build", 8), job("a"), job("b")], 2, 1)
        self.assertEqual(started(schedule), ["x/build", "a"])
        schedule.ended(schedule.running[0], True)
        self.assertEqual(started(schedule), ["y/build"])

    def test_what_needs_a_failed_build_never_starts(self):
        schedule = Schedule([job("x/test", needs="x/build"), job("x/build"), job("a")], 1, 1)
        started(schedule)
        self.assertEqual([one.label for one in schedule.ended(schedule.running[0], False)], ["x/test"])
        self.assertEqual(started(schedule), ["a"])

    def test_alone(self):
        schedule = Schedule([job("a"), job("w", 9, True)], 1, 0)
        self.assertEqual(started(schedule), ["w"])


class Heads(unittest.TestCase):
    def made(self, head, label="x.sh"):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, label)
            with open(path, "w", encoding="utf-8") as f:
                f.write(head)
            return jobs([path, "roots:30=true", "x/build=true"], "build", "python")[0]

    def test_head(self):
        one = self.made("# timeout: 600\n# takes: 40 s, waiting\n# needs: roots\n")
        self.assertEqual((one.limit, one.takes, one.waiting, one.needs), (600, 40.0, True, "roots"))
        one = self.made(" * timeout: 120  for a reason\n * takes: 7 s\n * needs: nothing\n")
        self.assertEqual((one.limit, one.takes, one.waiting, one.needs), (120, 7.0, False, ""))

    def test_steps(self):
        step, build, use = jobs(["roots:30,waiting=a=b", "x/build:9=true", "x/y=true"], "build", "python")
        self.assertEqual((step.label, step.takes, step.waiting, step.command[-1]), ("roots", 30.0, True, "a=b"))
        self.assertEqual((build.takes, build.waiting, use.takes), (9.0, False, 2.0))
        self.assertEqual((build.needs, use.needs), ("", "x/build"))

    def test_sanitizers_are_slow(self):
        plain, asan = jobs(["b/tests/unit/base/test_err", "b/address/tests/unit/base/test_err"], "b", "python")
        self.assertEqual((plain.label, asan.label), ("unit/base/test_err", "asan/unit/base/test_err"))
        self.assertGreater(asan.limit, plain.limit)
        self.assertTrue(asan.sanitized())


class Budgets(unittest.TestCase):
    def failures(self, minutes, strict):
        said = []
        one = report.Report([job("unit/a"), job("unit/b")], strict, said.append)
        for label in ("unit/a", "unit/b"):
            one.line(Outcome(job(label), "ok", "", "", 1.0, minutes * 30))
        report.budgets, kept = lambda: {"unit": 3.0}, report.budgets
        try:
            return one.end(), said[-1]
        finally:
            report.budgets = kept

    def test_a_lane_may_use_a_third_more(self):
        self.assertEqual(self.failures(3.9, True), (True, "2 passed, 0 failed, 0 skipped"))
        self.assertEqual(self.failures(4.1, True), (False, "2 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.failures(4.1, False), (True, "2 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
