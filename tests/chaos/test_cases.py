#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 50 s, waiting
# timeout: 600
"""The cases with which other projects test elastic training, each once: Horovod (one fails, all fail, too few are left,
the limit of resets, ranks added and removed), torchft (a rank fails at a step; a crash; one that hangs), ULFM (shrink,
respawn, a death during the repair of another), gloo (sizes, in place or not, SIGKILL after 5 and 50 ms). The workers
are those of the chaos run, and each case ends with a check of their records."""
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402
import job as jobs  # noqa: E402

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))


class Case(unittest.TestCase):
    job = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="hvd-case-")
        self.events = []

    def tearDown(self):
        if self.job:
            self.job.end()
        failed = self._outcome.result.failures or self._outcome.result.errors
        if failed and any(test is self for test, _ in failed) and self.job:
            print(f"---- hvdrun of {self.id()}:\n{self.said()[-6000:]}", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)

    def clear(self):
        """Cleans up for another job in the same folder."""
        if self.job:
            self.job.end()
        shutil.rmtree(self.folder)
        os.mkdir(self.folder, 0o700)
        self.events = []

    def start(self, np, least, most, *more, worker=()):
        argv = [os.path.join(BUILD, "hvdrun"), "-np", str(np), "--min-np", str(least), "--max-np", str(most), *more,
                os.path.join(BUILD, "tests", "chaos", "worker"), os.path.join(self.folder, "records"), "--pace", "1",
                "--max-bytes", "1048576", *worker]
        self.job = jobs.Job(self.folder, argv)
        self.until(lambda: len(self.job.working()) == np, f"{np} workers work")

    def said(self):
        with open(os.path.join(self.folder, "hvdrun.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def until(self, condition, what, seconds=30):
        deadline = time.monotonic() + seconds
        while True:
            self.job.look()
            found = condition()
            if found:
                return found
            if time.monotonic() > deadline:
                jobs.stacks(self.job, os.path.join(self.folder, "stacks"))
                with open(os.path.join(self.folder, "stacks"), encoding="utf-8") as f:
                    print(json.dumps(self.job.control.status()), f.read(), file=sys.stderr)
                self.fail(f"in {seconds} s not: {what}")
            time.sleep(0.01)

    def working(self, size, seconds=30):
        """Waits until n workers work in one world."""
        def together():
            found = self.job.working()
            return found if len(found) == size and all(w.size == size for w in found) else None
        return self.until(together, f"{size} workers in a world of {size}", seconds)

    def hit(self, *workers, number=signal.SIGKILL, wait=True):
        for worker in workers:
            self.assertTrue(worker.signal(number))
        self.events.append({"t": "kill" if number != signal.SIGSTOP else "stop", "ms": 0,
                            "uids": [w.uid for w in workers]})
        if wait and number != signal.SIGSTOP:
            self.until(lambda: not any(w.alive() for w in workers), "their end")

    def moves(self, steps=10, seconds=30):
        """All working workers make so many steps; a joiner counts from its first step on."""
        before = {w.uid: w.step for w in self.job.working()}
        self.until(lambda: all(w.step >= before.setdefault(w.uid, w.step) + steps for w in self.job.working()),
                   f"{steps} more steps", seconds)

    def end(self, first=1):
        """The job ends well, and everything from epoch first on is checked."""
        self.job.stop()
        self.until(lambda: self.job.process.poll() is not None, "the end", 60)
        self.assertEqual(self.job.process.returncode, 0)

        with open(os.path.join(self.job.records, "events.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(e) + "\n" for e in self.events)
        violations = check.check(self.job.records, first).violations
        self.assertFalse(violations, "".join(f"\n{what}: {text}" for what, text in violations))


class Horovod(Case):
    def test_one_fails_and_is_replaced(self):
        self.start(4, 2, 4)
        self.hit(self.job.working()[2])
        self.working(3)
        self.working(4)
        self.moves()
        self.end()

    def test_rank_0_fails(self):
        self.start(4, 2, 4)
        self.hit(self.job.working()[0])
        self.working(4)
        self.end()

    def test_all_fail(self):
        """New members start from the beginning: the records of the first ones are another story."""
        self.start(3, 2, 3)
        old = self.job.working()
        self.hit(*old)
        for worker in old:
            os.unlink(worker.path)
            del self.job.workers[worker.uid]
        first = self.working(3)[0].epoch
        self.moves()
        self.end(first)

    def test_too_few_are_left(self):
        self.start(4, 3, 4)
        self.hit(*self.job.working()[:2])
        self.working(4)
        self.moves()
        self.end()

    def test_reset_limit(self):
        self.start(2, 2, 2, "--reset-limit", "1")
        self.hit(self.job.working()[1])
        self.working(2)
        self.hit(self.job.working()[1])
        self.until(lambda: self.job.process.poll() is not None, "the end")
        self.assertNotEqual(self.job.process.returncode, 0)
        self.assertIn("reset-limit", self.said())

    def test_ranks_are_added_and_removed(self):
        self.start(2, 2, 5)
        for size in (4, 3, 5, 2):
            self.assertEqual(self.job.control.scale(size)[0], 200)
            self.working(size)
            self.moves()
        self.end()


class Torchft(Case):
    def test_each_rank_fails_at_a_step(self):
        self.start(4, 2, 4)
        for rank in (3, 0, 1):
            victim = self.working(4)[rank]
            self.until(lambda victim=victim: victim.step % 7 == 0, "a step")
            self.hit(victim)
        self.working(4)
        self.end()

    def test_a_crash(self):
        self.start(3, 2, 3)
        self.hit(self.job.working()[1], number=signal.SIGSEGV)
        self.working(3)
        self.end()

    def test_one_that_hangs(self):
        self.start(3, 2, 3)
        victim = self.job.working()[1]
        self.hit(victim, number=signal.SIGSTOP)
        self.until(lambda: not victim.alive(), "it is ended", 15)
        self.working(3)
        self.end()


class Ulfm(Case):
    def test_two_at_once(self):
        self.start(5, 2, 5)
        self.hit(*self.job.working()[1:3])
        self.working(5)
        self.end()

    def test_down_to_one(self):
        self.start(4, 1, 4)
        self.hit(*self.job.working()[1:])
        self.moves()
        self.working(4)
        self.end()

    def test_a_second_death_during_the_repair(self):
        self.start(5, 2, 5)
        for pause in (0.0002, 0.002, 0.01):
            first, second = self.working(5)[1:3]
            self.hit(first, wait=False)
            time.sleep(pause)
            self.hit(second)
        self.working(5)
        self.end()

    def test_a_joiner_dies(self):
        self.start(3, 2, 4)
        self.assertEqual(self.job.control.scale(4)[0], 200)
        young = self.until(lambda: [w for w in self.job.workers.values() if w.alive() and not w.works], "a joiner")
        self.hit(young[0])
        self.working(4)
        self.end()


class Gloo(Case):
    """Two deaths for each size, with four ranks and a minimum of two."""

    def sizes(self, place):
        for count in (1, 4, 10, 64, 100, 1000, 10000, 1000000):
            with self.subTest(count=count):
                self.clear()
                self.start(4, 2, 4, worker=("--only", f"allreduce:float32:{place}:{count}:1"))
                for milliseconds in (5, 50):
                    time.sleep(milliseconds / 1000)
                    self.hit(self.job.working()[-1])
                    self.job.look()
                self.moves()
                self.end()

    def test_in_place(self):
        self.sizes("in")

    def test_out_of_place(self):
        self.sizes("out")


if __name__ == "__main__":
    jobs.adopt_orphans()
    unittest.main()
