# SPDX-License-Identifier: Apache-2.0
"""Those who act during a simulated day (day.py), each a generator that yields the seconds until it acts again."""
import os
import signal

from day_jobs import FATAL, HOSTILE, NEVER, SUCCEEDS, node, pools_of
from day_operators import DRAIN_LIMIT
from day_world import FINISHED

MERGE = "application/merge-patch+json"
LEAVE = ("aws-node-termination-handler/spot-itn", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted",
         "cloud.google.com/impending-node-termination")
WAITING = 14         # ordinary jobs that wait before users create no more
LEFT = 10            # fair seconds after which no worker is on a node that was announced to end
CRASH_SEEN = 10      # fair seconds after which a crash that is not in the counts will never be there


# ---- tenants

def users(day):
    """Create ordinary jobs as long as not too many of theirs wait."""
    while not day.settling:
        yield day.dice.uniform(0, 2) * day.every["job"]
        waiting = sum(day.phase(plan) in ("", "Queued") for plan in day.plans.values() if plan.end == SUCCEEDS)
        if waiting < WAITING:
            day.create(day.jobs.ordinary())


def changes(day):
    """Users scale, suspend, resume and delete jobs."""
    suspended = []
    while True:
        yield day.dice.uniform(0, 2) * day.every["change"]
        unfinished = [p for p in day.plans.values() if p.end != NEVER and p.namespace != HOSTILE and not p.ending
                      and day.phase(p) not in ("", *FINISHED)]
        if suspended and (day.settling or day.dice.random() < 0.5):
            plan = suspended.pop()
            if not day.patch(f"{plan.path}/{plan.name}", {"spec": {"runPolicy": {"suspend": False}}}) and plan.key in day.plans:
                suspended.append(plan)
            continue
        if day.settling or not unfinished:
            continue
        plan, what, spec = day.dice.choice(unfinished), day.dice.random(), {}
        if what < 0.2:
            if day.patch(f"{plan.path}/{plan.name}", {"spec": {"runPolicy": {"suspend": True}}}):
                suspended.append(plan)
        elif what < 0.3:
            day.forget(plan)
        elif "minWorkers" in (spec := plan.manifest["spec"]):
            day.patch(f"{plan.path}/{plan.name}", {"spec": {"workers": day.dice.randint(spec["minWorkers"],
                                                                                        spec["maxWorkers"])}})


def hostile(day):
    """Creates jobs that cannot run, floods of them, and forged pods."""
    while not day.settling:
        yield day.dice.uniform(0, 2) * day.every["hostile"]
        for _ in range(day.dice.choice((1, 1, 1, 8))):
            day.create(day.jobs.hostile())
        victims = [p for p in day.plans.values() if p.end == SUCCEEDS and day.phase(p) not in ("", *FINISHED)]
        if victims and day.dice.random() < 0.5:
            path, pod = day.jobs.forged(day.dice.choice(victims))
            if day.try_(day.api.create, path, pod):
                day.forged.append(f"{path}/{pod['metadata']['name']}")


def kubelet(day):
    """Plays the programs in the pods: a gang works while it is Running, fails as planned, and ends with 0 when its work is
    done."""
    last = day.now()
    while True:
        yield 0.3
        passed, last = min(day.now() - last, 1), day.now()
        for plan in list(day.plans.values()):
            with day.world.lock:
                job = day.world.jobs.get(plan.key)
                running = [p.name for p in job.pods.values() if p.phase == "Running" and p.alive()] if job else []
                phase = job.phase if job else ""
            if plan.ending or phase == "Completing":
                plan.ending = True
                for name in running:
                    day.end_pod(plan, name, 0)
                continue
            restarts = job.status.get("restarts", 0) if job else 0
            # After a crash the others wait until the operator has seen it. It never counts that of a pod which is being
            # deleted, for example by a scale-down.
            waits = plan.crashed_at and restarts == plan.crashed_at[0] and day.world.fair < plan.crashed_at[1] + CRASH_SEEN
            if phase != "Running" or len(running) < plan.least or waits:
                continue
            plan.crashed_at = None
            plan.done += passed
            if plan.loops and plan.done >= 1 or plan.crashes and plan.done >= plan.crashes[0][0]:
                code = 1 if plan.loops else plan.crashes[0][1]
                day.world.crashes[plan.key] += 1
                if day.end_pod(plan, day.dice.choice(running), code):
                    plan.crashed_at = restarts, day.world.fair
                    plan.done = 0 if plan.loops else plan.done
                    # A pod that was just being deleted does not count as failed: the fatal crash happens again then.
                    plan.crashes = plan.crashes[code != FATAL:]
            elif plan.done >= plan.work:
                plan.ending = True


# ---- the cluster

def administrator(day):
    """Drains nodes as kubectl drain does: cordon, evict until the node is empty. Notes drains that take too long."""
    while not day.settling:
        yield day.dice.uniform(0.5, 1.5) * day.every["drain"]
        if day.settling:
            return
        name = day.some_node(lambda pool: True)
        if not name or not day.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}):
            continue
        day.drains += 1
        begin, fair = day.now(), day.world.fair
        pods = day.workers_on(name)
        day.say(f"drains {name} with {len(pods)} workers")
        while pods and day.world.fair - fair < DRAIN_LIMIT + 20:
            for path in pods:
                kind = {"apiVersion": "policy/v1", "kind": "Eviction"}
                namespace, pod = path
                day.try_(day.api.create, f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction",
                         {**kind, "metadata": {"namespace": namespace, "name": pod}})
            yield 1
            there = set(day.workers_on(name))
            pods = [path for path in pods if path in there]
        day.longest_drain = max(day.longest_drain, day.now() - begin)
        for namespace, pod in pods:
            day.world.fail("a drain without an end", day.job_of(namespace, pod), f"pod {pod} is still on {name}")
        yield day.dice.uniform(1, 8)
        while name in day.world.nodes and not day.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}}):
            yield 1


def cloud(day):
    """Takes spot nodes away, mostly after an announcement, and adds others."""
    while not day.settling:
        yield day.dice.uniform(0.5, 1.5) * day.every["spot"]
        if day.settling:
            return
        name = day.some_node(lambda pool: pool == "spot")
        if not name:
            continue
        day.losses += 1
        if day.dice.random() < 0.7:
            key = day.dice.choice(LEAVE)
            taint = {"key": key, "effect": day.dice.choice(("NoSchedule", "PreferNoSchedule"))}
            if not day.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}}):
                continue
            day.say(f"announces the end of {name} by {key}, with {len(day.workers_on(name))} workers")
            fair = day.world.fair
            yield 15
            if day.world.fair - fair > LEFT:
                for namespace, pod in day.workers_on(name):
                    day.world.fail("not moved in time", day.job_of(namespace, pod), f"pod {pod} is on {name}, which ends")
        else:
            day.say(f"loses {name} with {len(day.workers_on(name))} workers")
        while name in day.world.nodes:
            day.try_(day.api.delete, f"/api/v1/nodes/{name}")
            yield 1
        yield day.dice.uniform(1, 10)
        day.nodes_made += 1
        fresh = node(f"spot-new-{day.nodes_made}", "spot")
        while fresh["metadata"]["name"] not in day.world.nodes:
            day.try_(day.api.create, "/api/v1/nodes", fresh)
            yield 1


def outages(day):
    """The API server ends and comes back, or hangs."""
    while not day.settling:
        yield day.dice.uniform(0.7, 1.3) * day.every["outage"]
        if day.settling:
            return
        seconds = day.dice.uniform(2, day.longest_outage)
        hangs = day.outages % 2 == 1
        day.outages += 1
        day.away = True
        day.say(f"the API server {'hangs' if hangs else 'is away'} for {seconds:.0f} s")
        if hangs:
            pid = int(day.cluster.ask("pid kube-apiserver"))
            os.kill(pid, signal.SIGSTOP)
            yield seconds
            os.kill(pid, signal.SIGCONT)
        else:
            day.cluster.ask("stop kube-apiserver")
            yield seconds
            day.cluster.ask("start kube-apiserver")
        while not day.try_(day.api.get, "/readyz"):
            yield 0.5
        for name in () if hangs else ("kube-scheduler", "kube-controller-manager"):
            day.cluster.ask(f"stop {name}")     # else their own pauses after failures would hold up everything
            day.cluster.ask(f"start {name}")
        day.away = False


def janitor(day):
    """When the disturbances have ended: removes forged pods."""
    while True:
        yield 1
        while day.settling and day.forged:
            if not day.remove(day.forged[-1]):
                break
            day.forged.pop()


def all_nodes(count):
    """The nodes of the cluster at its begin."""
    return [node(f"{pool}-{i}", pool) for pool, n in pools_of(count).items() for i in range(n)]


