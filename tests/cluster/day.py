#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A day in the life of a shared cluster: two operators, five namespaces with quotas, priorities, drains, spot losses, API
outages, failovers, upgrades, a hostile tenant. `make cluster-day`; test_operator_day.py runs three minutes of it.

    day.py --minutes 40 --nodes 500 --seed 7

In the first part everything disturbs; then the disturbances end, and every job that can finish must do so. Invariants are
checked at each event (day_world.py). Everything that is chosen comes from the seed; what happens also depends on the
machine's speed, so the same seed gives a similar day, not the same one. Prints a line a minute, and a table at the end. Exits
with 1 if an invariant was violated."""
import argparse
import heapq
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster as clusters  # noqa: E402
import day_actors as actors  # noqa: E402
import operators  # noqa: E402
from api import Api, Refused, wait_until  # noqa: E402
from day_jobs import ANY, FAILS, HOSTILE, NEVER, PRIORITIES, SUCCEEDS, TEAMS, Jobs, processors, quotas_of  # noqa: E402
from day_operators import Operators  # noqa: E402
from day_world import FINISHED, World  # noqa: E402

SHARE = 40                # percent, --namespace-share
DISTURBED = 0.6           # of the day
SETTLE_LEAST = 150        # fair seconds, at least, in which all jobs finish after the disturbances
SETTLE_PACES = 6          # the same in mean works of a job: the jobs of a namespace with a tight quota run one after the other
WRONG_MOST = 20           # violated invariants after which the day ends
SECONDS_EACH = 60         # a line of progress
# Refused creates of one job: the pauses 5, 10 ... 300 s after a refusal allow 7 in the first five minutes, then one in five
# minutes; a new leader begins again.
REFUSALS_FIRST, REFUSALS_MINUTES = 7, 5


class Day:
    def __init__(self, cluster, seed, minutes, nodes):
        self.cluster, self.seed, self.minutes, self.nodes = cluster, seed, minutes, nodes
        self.dice = random.Random(seed)
        self.api = Api.from_kubeconfig(cluster.kubeconfig, cluster.ca, timeout=5)
        self.jobs = Jobs(random.Random(self.dice.random()), nodes, SHARE, pace=max(12, nodes / 8))
        self.world = World(cluster, SHARE, self.jobs.quotas, PRIORITIES)
        self.operators = Operators(cluster, random.Random(self.dice.random()), SHARE)
        # Mean seconds between two acts. A short day has as many kinds of them as a long one.
        scale = min(minutes, 20) / 3
        self.every = {"job": 0.35, "change": 1.5, "hostile": 4, "drain": 6 * scale ** 0.3, "spot": 7 * scale ** 0.3,
                      "outage": 30 * scale ** 0.5, "failover": 25 * scale ** 0.5, "upgrade": 45 * scale}
        self.longest_outage = 8 if minutes <= 5 else 60
        self.plans, self.gone, self.forged = {}, [], []
        self.settling = self.away = False
        self.began, self.heap, self.turn = time.monotonic(), [], 0
        self.drains = self.losses = self.outages = self.nodes_made = 0
        self.longest_drain = 0
        self.lost = []          # plans whose create was not answered
        self.waits = {}         # {namespace: the longest wait of a job that was to run}
        self.admitted = set()   # jobs whose wait has ended

    # ---- for the actors

    def now(self):
        return time.monotonic() - self.began

    def say(self, text):
        print(f"{self.now():7.1f} s  {text}", flush=True)

    def try_(self, call, *arguments, **more):
        """The result of a request, or None if it was refused or not answered: true for success."""
        try:
            return call(*arguments, **more) or True
        except (Refused, OSError):
            return None

    def patch(self, path, body):
        return self.try_(self.api.call, "PATCH", path, body, kind=actors.MERGE)

    def remove(self, path):
        """True: it does not exist any more."""
        try:
            self.api.delete(path)
            return True
        except Refused as error:
            return error.code == 404
        except OSError:
            return False

    def create(self, plan):
        """A create without a response may have happened: then the job exists, and the second one is refused with 409."""
        plan.made = self.now()
        try:
            self.api.create(plan.path, plan.manifest)
        except Refused as error:
            if error.code != 409:
                if plan.end != ANY:
                    raise AssertionError(f"{plan.key} was refused: {error}") from None
                return
        except OSError:
            self.lost.append(plan)
            return
        self.plans[plan.key] = plan

    def forget(self, plan):
        """Deletes a job."""
        if self.remove(f"{plan.path}/{plan.name}"):
            self.plans.pop(plan.key, None)
            self.gone.append(plan)

    def phase(self, plan):
        job = self.world.jobs.get(plan.key)
        return job.phase if job else ""

    def end_pod(self, plan, name, code):
        """Sets the status that a kubelet sets when the program has exited."""
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed",
                                "finishedAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}}
        status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": [
            {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 0, "state": state}]}
        return self.patch(f"/api/v1/namespaces/{plan.namespace}/pods/{name}/status", {"status": status})

    def some_node(self, of_pool):
        """A node that is not cordoned, drained or lost. A node with workers is preferred."""
        with self.world.lock:
            busy = {p.node for p in self.world.pods.values() if p.owner and p.alive()}
            free = [name for name, one in sorted(self.world.nodes.items())
                    if of_pool(one["metadata"]["labels"].get("pool")) and not one["spec"].get("unschedulable")
                    and not any(t["key"] in actors.LEAVE or t["key"].startswith("node.kubernetes.io/")
                                for t in one["spec"].get("taints", []))]
        with_workers = [name for name in free if name in busy]
        return self.dice.choice(with_workers or free) if free else None

    def workers_on(self, node):
        """[(namespace, name)] of pods of unfinished jobs there that are not being deleted. Jobs of which a worker has
        succeeded are left alone: no worker of theirs is moved any more."""
        with self.world.lock:
            found = []
            for pod in self.world.pods.values():
                job = self.world.jobs.get(self.world.owners.get(pod.owner))
                if pod.node == node and pod.alive() and job and job.phase not in ("Completing", *FINISHED) \
                        and not any(p.phase == "Succeeded" for p in job.pods.values()):
                    found.append((pod.namespace, pod.name))
            return found

    def job_of(self, namespace, pod):
        return next((key for key, job in self.world.jobs.items() for p in job.pods.values()
                     if p.namespace == namespace and p.name == pod), f"{namespace}/{pod}")

    # ---- the day

    def prepare(self):
        for name, value in PRIORITIES.items():
            self.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
                "globalDefault": name == "normal"})
        for name in (*TEAMS, HOSTILE):
            labels = {"pod-security.kubernetes.io/enforce": "restricted"} if name == "team-c" else {}
            self.api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                                   "metadata": {"name": name, "labels": labels}})
            self.api.create(f"/api/v1/namespaces/{name}/resourcequotas", {
                "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all"},
                "spec": {"hard": {k: str(v) for k, v in quotas_of(self.nodes)[name].items()}}})
        self.api.create("/api/v1/namespaces/team-a/limitranges", {
            "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "memory"},
            "spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "512Mi"}}]}})
        for one in actors.all_nodes(self.nodes):
            self.api.create("/api/v1/nodes", one)
        self.remove("/api/v1/nodes/kwok-0")
        wait_until("all quotas and nodes", 120, self.prepared, pause=1)

    def prepared(self):
        quotas = self.api.get("/api/v1/resourcequotas")["items"]
        nodes = self.api.get("/api/v1/nodes")["items"]
        ready = sum(any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", []))
                    and not any(t["key"] == "node.kubernetes.io/not-ready" for t in one["spec"].get("taints", []))
                    for one in nodes)
        accounts = self.api.get("/api/v1/serviceaccounts?fieldSelector=metadata.name%3Ddefault")["items"]
        return (all(one.get("status", {}).get("used") for one in quotas) and ready == len(actors.all_nodes(self.nodes))
                and {*TEAMS, HOSTILE} <= {one["metadata"]["namespace"] for one in accounts})

    def add(self, actor, always=False):
        """always: it acts also while the API server is away."""
        self.turn += 1
        heapq.heappush(self.heap, (self.now(), self.turn, actor, always))

    def step(self):
        """Lets the next actor act."""
        at, _, actor, always = heapq.heappop(self.heap)
        while (left := at - self.now()) > 0:
            time.sleep(min(0.1, left))
        if self.away and not always:
            pause = 0.5
        else:
            pause = next(actor, None)
        if pause is not None:
            self.turn += 1
            heapq.heappush(self.heap, (self.now() + pause, self.turn, actor, always))

    def watchman(self):
        """Checks what passes with time, and prints the progress."""
        lines = 0
        while True:
            yield 1
            self.world.check(self.away)
            if dead := self.operators.dead():
                self.world.fail("an operator ended", "operator", dead)
                return
            if int(self.now() // SECONDS_EACH) > lines:
                lines = int(self.now() // SECONDS_EACH)
                self.progress()
            if int(self.now()) % 5 == 0:
                self.operators.look()
            self.note_waits()
            while self.lost and not self.away:
                self.create(self.lost.pop())

    def note_waits(self):
        for plan in self.plans.values():
            if plan.end != SUCCEEDS or plan.namespace == HOSTILE:
                continue
            job = self.world.jobs.get(plan.key)
            if job and plan.key not in self.admitted:
                wait = (job.admitted - self.began if job.admitted else self.now()) - plan.made
                self.waits[plan.namespace] = max(wait, self.waits.get(plan.namespace, 0))
                if job.admitted:
                    self.admitted.add(plan.key)

    def counts(self):
        """{phase: jobs}"""
        phases = {}
        with self.world.lock:
            for job in self.world.jobs.values():
                phases[job.phase or "-"] = phases.get(job.phase or "-", 0) + 1
        return phases

    def progress(self):
        with self.world.lock:
            pods = sum(p.owner is not None and not p.ended() for p in self.world.pods.values())
            nodes = len(self.world.nodes)
        phases = " ".join(f"{phase} {n}" for phase, n in sorted(self.counts().items()))
        self.say(f"{self.now() / 60:.0f} min: jobs {phases}; {pods} pods on {nodes} nodes; {self.drains} drains, {self.losses} "
                 f"losses, {self.outages} outages, {self.operators.failovers} failovers, {self.operators.upgrades} upgrades; "
                 f"{self.world.preemptions} preemptions; fair {self.world.fair:.0f} s; load {os.getloadavg()[0]:.1f}")

    def unfinished(self):
        """Jobs that could finish, and have not."""
        return [plan for plan in self.plans.values() if plan.end in (SUCCEEDS, FAILS) and self.phase(plan) not in FINISHED]

    def run(self):
        for place in (0, 1):
            self.operators.start(place)
        wait_until("a leader", 60, lambda: self.world.holder)
        self.began = time.monotonic()
        self.world.began = self.began
        for actor in (actors.users, actors.changes, actors.hostile, actors.administrator, actors.cloud, actors.janitor):
            self.add(actor(self))
        self.add(actors.kubelet(self))
        self.add(actors.outages(self), always=True)
        self.add(self.watchman(), always=True)
        for actor in (self.operators.failover, self.operators.upgrade):
            self.add(actor(self), always=True)
        length = self.minutes * 60 * DISTURBED
        while self.now() < length and len(self.world.wrong) < WRONG_MOST:
            self.step()
        self.settling = True
        self.say("the disturbances end")
        limit = self.world.fair + max(SETTLE_LEAST, SETTLE_PACES * self.jobs.pace, self.minutes * 60 * (1 - DISTURBED))
        while (self.unfinished() or self.lost) and self.world.fair < limit and len(self.world.wrong) < WRONG_MOST:
            self.step()
        self.judge()

    # ---- the end

    def judge(self):
        if len(self.world.wrong) >= WRONG_MOST:
            return      # the day was ended early
        for plan in self.unfinished():
            self.world.fail("not finished", plan.key, f"phase {self.phase(plan)}, work {plan.done:.1f} of {plan.work:.1f} s, "
                                                      f"message {self.message(plan)}")
        for plan in self.plans.values():
            phase, wanted = self.phase(plan), {SUCCEEDS: ("Succeeded",), FAILS: ("Failed",)}.get(plan.end)
            if wanted and phase in FINISHED and phase not in wanted and not self.late(plan):
                self.world.fail("another end", plan.key, f"{phase}, wanted {wanted}: {self.message(plan)}")
            if plan.end == NEVER and phase in FINISHED:
                self.world.fail("another end", plan.key, f"{phase}, but it cannot run: {self.message(plan)}")
        refusable = sum(plan.namespace == HOSTILE or plan.end == NEVER for plan in self.plans.values())
        terms = 1 + self.operators.failovers + 2 * self.operators.upgrades + self.outages
        most = 20 + terms * refusable * (REFUSALS_FIRST + self.minutes / REFUSALS_MINUTES)
        if sum(self.operators.refused.values()) > most:
            self.world.fail("too many refused creates", "operator", f"{self.operators.refused}, at most {most:.0f}")

    def late(self, plan):
        """Did it lose a worker after another had succeeded? Then it may fail."""
        job = self.world.jobs.get(plan.key)
        return job and job.late_loss and job.message.startswith("a worker failed after another had succeeded")

    def message(self, plan):
        job = self.world.jobs.get(plan.key)
        return job.message if job else "(gone)"

    def table(self):
        world, late = self.world, sum(bool(self.late(p)) for p in self.plans.values())
        ends = {end: sum(p.end == end for p in self.plans.values()) for end in (SUCCEEDS, FAILS, NEVER, ANY)}
        rows = [("seed", self.seed), ("minutes, of which fair", f"{self.now() / 60:.1f}, {world.fair / 60:.1f}"),
                ("nodes", f"{self.nodes}, {self.nodes_made} of them replaced"), ("pods", len(world.made)),
                ("jobs", f"{len(self.plans) + len(self.gone)}: " + ", ".join(f"{n} {end}" for end, n in ends.items())
                 + f", {len(self.gone)} deleted"),
                ("lost a worker after their end", late),
                ("admissions", ", ".join(f"{k} {v}" for k, v in sorted(world.admissions.items()))),
                ("preemptions", world.preemptions), ("drains", f"{self.drains}, the longest {self.longest_drain:.1f} s"),
                ("spot losses", self.losses), ("outages", self.outages),
                ("failovers, upgrades", f"{self.operators.failovers}, {self.operators.upgrades}"),
                ("longest wait", ", ".join(f"{k} {v:.0f} s" for k, v in sorted(self.waits.items()))),
                ("refused creates", f"{sum(self.operators.refused.values()):.0f}"),
                ("operator's memory", f"{self.operators.usage.most / 2**20:.1f} MiB at most"),
                ("operators' processor time", f"{self.operators.usage.seconds():.1f} s"),
                ("longest pause of renewals", f"{world.longest_pause_of_renewals():.1f} s"),
                ("pods beyond a quota, by a miscount of Kubernetes", world.miscounts),
                ("violated invariants", len(world.wrong))]
        for name, value in rows:
            print(f"  {name:50} {value}", flush=True)


def live(seed, minutes, nodes):
    """Runs a day. Returns the violated invariants."""
    with clusters.Cluster(kwok=1) as cluster:
        operators.install(cluster)
        day = Day(cluster, seed, minutes, nodes)
        day.prepare()
        with day.world:
            try:
                day.run()
            finally:
                if day.away:
                    day.try_(resume, cluster)
                day.operators.stop()
                day.table()
        if os.environ.get("HVD_KEEP_LOG"):
            subprocess.run(["cp", "-r", cluster.path("log"), os.environ["HVD_KEEP_LOG"]], check=True)
        return day.world.wrong


def resume(cluster):
    os.kill(int(cluster.ask("pid kube-apiserver")), signal.SIGCONT)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("HVD_DAY_MINUTES") or 40))
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--seed", type=int, default=int(os.environ.get("HVD_SEED") or 1))
    arguments = parser.parse_args()
    operators.check_program()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that what was started is ended
    wrong = live(arguments.seed, arguments.minutes, arguments.nodes)
    print(f"seed {arguments.seed}: {len(wrong)} violated invariants" if wrong else "all invariants held")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
