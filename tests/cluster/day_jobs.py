# SPDX-License-Identifier: Apache-2.0
"""The jobs of a simulated day (day.py), by seed: those of ordinary tenants, of which it is known how they end, and those of a
hostile one. Pure."""
import dataclasses
import sys

import operators
from manifests import SCHEMA, all_of_them

PRIORITIES = {"low": -10, "normal": 0, "high": 100}
TEAMS = ("team-a", "team-b", "team-c", "team-d")
HOSTILE = "mallory"
GPU = "nvidia.com/gpu"
SUCCEEDS, FAILS, NEVER, ANY = "succeeds", "fails", "never ends", "any end"
# Exit codes that the rules below name.
IGNORED, RESTARTS, FATAL = 42, 43, 44
RULES = [{"name": "ignored", "action": "Ignore", "onExitCodes": {"operator": "In", "values": [IGNORED]}},
         {"name": "restarts", "action": "RestartGang", "onExitCodes": {"operator": "In", "values": [RESTARTS]}},
         {"name": "fatal", "action": "FailJob", "onExitCodes": {"operator": "In", "values": [FATAL]}}]

# Of each pool: its part of all nodes, what a node offers, its taint.
POOLS = {
    "small": (0.40, {"cpu": "8", "memory": "32Gi", "pods": "110"}, None),
    "large": (0.15, {"cpu": "32", "memory": "128Gi", "pods": "110", GPU: "8"}, None),
    "spot": (0.35, {"cpu": "8", "memory": "32Gi", "pods": "110"}, None),
    "dedicated": (0.10, {"cpu": "16", "memory": "64Gi", "pods": "110"}, "dedicated"),
}


@dataclasses.dataclass
class Plan:
    """A job that will be created, and what the simulated programs in its pods do."""
    manifest: dict
    end: str                     # SUCCEEDS ...
    work: float = 0              # seconds that its gang must run until its programs exit with 0
    crashes: list = dataclasses.field(default_factory=list)    # [(after how much work, exit code)], in order
    loops: bool = False          # a program fails each time that it has run for a second
    done: float = 0              # work so far
    crashed_at: tuple = None     # (status.restarts, fair seconds) when a program failed, until the operator has seen that
    ending: bool = False         # its programs exit with 0 now
    made: float = 0              # when it was created

    name = property(lambda self: self.manifest["metadata"]["name"])
    namespace = property(lambda self: self.manifest["metadata"]["namespace"])
    key = property(lambda self: f"{self.namespace}/{self.name}")
    least = property(lambda self: self.manifest["spec"].get("minWorkers", self.manifest["spec"].get("workers", 1)))
    path = property(lambda self: f"/apis/hvd.dev/v1alpha1/namespaces/{self.namespace}/hvdjobs")


def node(name, pool):
    _, offers, taint = POOLS[pool]
    taints = [{"key": taint, "value": "batch", "effect": "NoSchedule"}] if taint else []
    return {"apiVersion": "v1", "kind": "Node", "spec": {"taints": taints},
            "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name, "pool": pool,
                                                  "kubernetes.io/os": "linux"}},
            "status": {"allocatable": offers, "capacity": offers}}


def pools_of(nodes):
    """{pool: how many}, at least two of each."""
    return {pool: max(2, round(part * nodes)) for pool, (part, _, _) in POOLS.items()}


def processors(nodes):
    return sum(n * int(POOLS[pool][1]["cpu"]) for pool, n in pools_of(nodes).items())


def quotas_of(nodes):
    """{namespace: {resource: amount}}. team-b's is tight."""
    cpu, gpus = processors(nodes), pools_of(nodes)["large"] * 8
    return {name: {"pods": round(part * 20 * nodes), "requests.cpu": round(part * cpu), f"requests.{GPU}": round(part * gpus)}
            for name, part in {**dict.fromkeys(TEAMS, 0.5), "team-b": 0.12, HOSTILE: 0.2}.items()}


class Jobs:
    """Makes plans. share: of a namespace, in percent; pace: mean work of a job in seconds."""

    def __init__(self, dice, nodes, share, pace):
        self.dice, self.nodes, self.pace, self.number = dice, nodes, pace, 0
        self.quotas, self.share = quotas_of(nodes), share
        sys.setrecursionlimit(20000)    # for the deepest of them, which is left out
        self.malformed = [job for name, job, how, _ in all_of_them() if how != SCHEMA and "spec.more" not in name]

    def name(self, kind):
        self.number += 1
        return f"{kind}-{self.number}"

    def fitting(self, namespace, each, most, gpus=0, pool=None):
        """At most so many workers: within two thirds of quota and share, and half of the pool."""
        limit = min(self.quotas[namespace]["requests.cpu"], processors(self.nodes) * self.share / 100) / 1.5 // each
        if gpus:
            limit = min(limit, self.quotas[namespace][f"requests.{GPU}"] / 1.5 // gpus,
                        pools_of(self.nodes)["large"] * 8 * self.share / 100 / 1.5 // gpus)
        if pool:
            limit = min(limit, pools_of(self.nodes)[pool] // 2)
        return max(1, min(most, int(limit)))

    def template(self, namespace, cpu, gpus=0, pool=None, priority=None, **spec):
        requests = {"cpu": str(cpu), **({GPU: str(gpus)} if gpus else {})}
        container = {"name": "main", "image": "none", "command": ["train"],
                     "resources": {"requests": requests, **({"limits": {GPU: str(gpus)}} if gpus else {})}}
        pod = {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}
        if namespace == "team-c":
            container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            pod["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
        if pool:
            pod["nodeSelector"] = {"pool": pool}
        if pool and POOLS[pool][2]:
            pod["tolerations"] = [{"key": POOLS[pool][2], "operator": "Exists"}]
        if priority:
            pod["priorityClassName"] = priority
        return {"spec": pod}

    def job(self, kind, namespace, workers, template, end, gang=None, run=None, **more):
        spec = {key: more.pop(key) for key in ("minWorkers", "maxWorkers") if key in more}
        return Plan(operators.manifest(self.name(kind), workers, namespace=namespace, template=template, run=run,
                                       gang={"timeoutSeconds": 30, "probeSeconds": 0, **(gang or {})}, **spec), end, **more)

    # ---- ordinary tenants

    def ordinary(self):
        dice, namespace = self.dice, self.dice.choice(TEAMS)
        priority = dice.choices(("low", "normal", "high"), (4, 4, 2))[0]
        work, shape = dice.uniform(0.4, 1.6) * self.pace, dice.random()
        cpu, gpus, pool, most = dice.choice((1, 2, 4, 8)), 0, None, dice.choice((1, 2, 4, 8, self.nodes // 4))
        if shape < 0.15:
            cpu, gpus, most = 4, dice.choice((1, 4, 8)), 6
        elif shape < 0.3:
            pool = dice.choice(("spot", "dedicated"))
        workers = self.fitting(namespace, cpu, most, gpus, pool)
        run = {"drainPolicy": dice.choice(("Wait", "Wait", "Shrink", "Restart", "Block"))}
        end, crashes = SUCCEEDS, []
        if dice.random() < 0.25:
            run["failurePolicy"] = {"rules": RULES}
            code = dice.choice((1, IGNORED, RESTARTS, FATAL))
            crashes = [(dice.uniform(0, 0.8) * work, code)]
            end = FAILS if code == FATAL else SUCCEEDS
        elif dice.random() < 0.2:
            crashes = sorted((dice.uniform(0, 0.8) * work, dice.choice((1, 137))) for _ in range(dice.randrange(1, 4)))
        more = {"work": work, "crashes": crashes, "run": run}
        if workers > 1 and dice.random() < 0.5:
            more.update(minWorkers=dice.randrange(1, workers), maxWorkers=workers)
        template = self.template(namespace, cpu, gpus, pool, priority)
        return self.job("elastic" if "minWorkers" in more else "fixed", namespace, workers, template, end, **more)

    # ---- the hostile one

    def hostile(self):
        kind = self.dice.choice(("huge", "greedy", "over", "refused", "broken", "broken", "loop", "nowhere", "names", "tolerant"))
        return getattr(self, kind)()

    def never(self, kind, workers, template, namespace=HOSTILE, **gang):
        return self.job(kind, namespace, workers, template, NEVER, gang={"timeoutSeconds": 8, **gang}, work=1)

    def huge(self):
        """A worker that no node has room for, admitted on trial again and again."""
        return self.never("huge", 2, self.template(HOSTILE, 1000, priority="high"), probeSeconds=3)

    def greedy(self):
        """More than the share, with the highest priority."""
        return self.never("greedy", processors(self.nodes) // 8, self.template("team-d", 8, priority="high"), "team-d")

    def over(self):
        return self.never("over", self.quotas[HOSTILE]["pods"] + 1, self.template(HOSTILE, 1, priority="high"))

    def refused(self):
        template = self.template("team-d", 4)      # without what "restricted" requires
        return self.never("refused", 3, template, "team-c")

    def broken(self):
        job = self.dice.choice(self.malformed)
        job = {**job, "metadata": {**job["metadata"], "name": self.name("broken"), "namespace": HOSTILE}}
        return Plan(job, ANY, work=1)

    def loop(self):
        return self.job("loop", HOSTILE, 4, self.template(HOSTILE, 1), FAILS, run={"backoffLimit": 1}, work=1e9, loops=True)

    def nowhere(self):
        """An affinity that no node meets: it cannot be judged, so it is admitted on trial."""
        wish = {"matchExpressions": [{"key": "no", "operator": "In", "values": ["such"]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [wish]}}}
        return self.never("nowhere", 3, self.template(HOSTILE, 1, affinity=affinity))

    def names(self):
        """Hundreds of resources with long names."""
        template = self.template(HOSTILE, 1)
        many = {f"{'x' * 50}{n}.example.com/{'y' * 50}": "1" for n in range(self.dice.choice((3, 100, 300)))}
        resources = template["spec"]["containers"][0]["resources"]
        resources["requests"].update(many)
        resources["limits"] = many
        return self.never("names", 2, template)

    def tolerant(self):
        """Tolerates every taint, and ends well: on its own it does nothing wrong."""
        template = self.template(HOSTILE, 1, tolerations=[{"operator": "Exists"}])
        return self.job("tolerant", HOSTILE, 4, template, SUCCEEDS, work=self.pace / 2)

    def forged(self, victim):
        """A pod that says that it is a worker of somebody's job: in the hostile namespace, or with the rights of a user of the
        same namespace, without an owner, with a name that the job may want."""
        name = self.name("forged")
        namespace = self.dice.choice((HOSTILE, victim.namespace))
        if namespace == victim.namespace and self.dice.random() < 0.5:
            name = f"{victim.name}-0-{self.dice.randrange(1, 4)}"
        pod = self.template(namespace, 1)
        labels = {"hvd.dev/job": victim.name, "hvd.dev/worker": "0", "hvd.dev/attempt": "0"}
        return f"/api/v1/namespaces/{namespace}/pods", {"apiVersion": "v1", "kind": "Pod",
                                                       "metadata": {"name": name, "labels": labels}, **pod}
