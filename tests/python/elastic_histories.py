#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Random histories of elastic jobs: elastic_rank.py under hvdrun with plans made from seeds. Each must end well,
with every sample used exactly once. The folder of a failed history is kept, and the command that repeats it is printed.

    elastic_histories.py HISTORIES [SEED]     HVDRUN, HVD_LIBRARY and PYTHONPATH are set
"""
import os
import random
import shutil
import subprocess
import sys
import tempfile

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "elastic_rank.py")
SAMPLES, EPOCHS, SECONDS = "100", "6", "90"


def make_plan(dice, ranks):
    """Deaths before, in and after steps, of ranks that may not exist any more; new sizes."""
    words = []
    for changes in range(dice.randint(1, 4)):
        for _ in range(dice.randint(1, 2)):
            when = f"{changes}.{dice.randint(0, 8)}"
            if dice.random() < 0.35:
                words.append(f"{when}:{dice.randint(1, 5)}")
            else:
                where = dice.choice(["before", "in", "after"])
                words.append(f"{when}:{where}:{dice.randint(0, ranks + changes)}")
    return " ".join(words)


def run(seed, folder):
    """Runs one history. Returns the plan, whether it ended well, and the whole output."""
    dice = random.Random(seed)
    ranks = dice.randint(2, 4)
    env = dict(os.environ, HVD_TEST_PLAN=make_plan(dice, ranks), HVD_TEST_CHANGES="0")
    env["HVD_TEST_JOB"] = f"histories-{os.getpid()}-{seed}"
    if dice.random() < 0.25:
        env["HVD_ELASTIC_INTERRUPT"] = "1"
    hvdrun = ["timeout", "-k", "5", SECONDS, env["HVDRUN"], "--name", env["HVD_TEST_JOB"], "-np", str(ranks)]
    hvdrun += ["--keep-places"] if seed % 2 else []  # then joiners come between the survivors
    hvdrun += ["--min-np", "1", "--max-np", "6", sys.executable, RANK, folder, SAMPLES, EPOCHS]
    job = subprocess.run(hvdrun, env=env, capture_output=True, text=True)
    check = [sys.executable, RANK, "check", folder, SAMPLES]
    found = subprocess.run(check, env=env, capture_output=True, text=True)
    said = job.stdout + job.stderr + found.stdout + found.stderr
    return env["HVD_TEST_PLAN"], job.returncode == 0 and found.returncode == 0, said


def main():
    histories = int(sys.argv[1])
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1_000_000)
    print(f"seeds from {first}", flush=True)
    for seed in range(first, first + histories):
        folder = tempfile.mkdtemp(prefix="hvd-history-")
        plan, well, said = run(seed, folder)
        if not well:
            print(said)
            print(f"FAILED: elastic_histories.py 1 {seed} ({plan}); what the ranks wrote: {folder}")
            sys.exit(1)
        shutil.rmtree(folder)
        print(f"ok {seed} ({plan}): {said.strip().splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
