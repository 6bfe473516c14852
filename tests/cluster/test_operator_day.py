#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 220 s, waiting
# needs: kubernetes
"""Three minutes of the day in the life of a shared cluster (day.py), with 60 nodes and a fixed seed. HVD_SEED=n,m,... for
others. `make cluster-day` runs 40 minutes with 500 nodes.
timeout: 1200"""
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import day  # noqa: E402
import operators  # noqa: E402

SEEDS = [int(word) for word in (os.environ.get("HVD_SEED") or "1").split(",")]
MINUTES, NODES = 3, 60


class Day(unittest.TestCase):
    def test_three_minutes(self):
        for seed in SEEDS:
            with self.subTest(seed):
                wrong = day.live(seed, MINUTES, NODES)
                self.assertEqual(wrong, [], f"seed {seed}")


def needs():
    operators.check_program()


if __name__ == "__main__":
    case.main("test_operator_day", needs)
