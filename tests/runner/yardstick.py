# SPDX-License-Identifier: Apache-2.0
"""How slow the machine is while the tests run.

The same work takes more processor time on a shared machine whose neighbours use the caches, the memory or the other half of
a core. So a fixed piece of work is timed again and again, and the budgets of tests/BUDGETS grow as it does."""
import statistics
import threading
import time

QUIET = 0.030      # seconds of processor time that the work takes on a quiet machine of those that run the tests
PAUSE = 20         # seconds between two measurements


def work():
    words = {}
    for i in range(200_000):
        words[i * 7919 % 65537] = i
    return sum(sorted(words.values()))


def measure():
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


class Yardstick:
    def __init__(self):
        self.times = []
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        work()      # the first time takes longer
        while True:
            self.times.append(measure())
            time.sleep(PAUSE)

    def slowness(self):
        """How many times as long as on a quiet machine the work has taken, the median; at least 1."""
        return max(1.0, statistics.median(self.times) / QUIET) if self.times else 1.0
