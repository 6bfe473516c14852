# SPDX-License-Identifier: Apache-2.0
"""Which job starts next. Pure: no clock, no processes.

There are two kinds of places: one for each core for jobs that compute, and more for jobs that wait. In each kind the longest
job starts first, so that no long one is alone at the end. A build that other jobs need comes before everything else, but one
build at a time: it uses all cores by itself, and tests that need no build can run beside it."""


class Schedule:
    def __init__(self, jobs, computing, waiting):
        """computing, waiting: how many jobs of each kind may run at a time."""
        self.needed = {job.needs for job in jobs}
        self.pending = sorted(jobs, key=lambda job: (job.label not in self.needed, -job.takes))
        if waiting < 1:     # then waiting jobs take places of computing ones
            for job in jobs:
                job.waiting = False
        self.free = {False: computing, True: waiting}
        self.running, self.passed = [], set()

    def is_build(self, job):
        return job.label in self.needed and not job.waiting

    def next(self):
        """The job that may start now, which counts as running from here on. None if another job must end first."""
        for job in self.pending:
            if job.needs and job.needs not in self.passed:
                continue
            if self.is_build(job) and any(self.is_build(other) for other in self.running):
                continue
            if self.free[job.waiting] > 0:
                self.pending.remove(job)
                self.running.append(job)
                self.free[job.waiting] -= 1
                return job
        return None

    def ended(self, job, passed):
        """A running job has ended. Returns the jobs that can never start because of it."""
        self.running.remove(job)
        self.free[job.waiting] += 1
        if passed:
            self.passed.add(job.label)
            return []
        stranded = [other for other in self.pending if other.needs == job.label]
        for other in stranded:
            self.pending.remove(other)
        return stranded
