# SPDX-License-Identifier: Apache-2.0
"""What the API server has during a simulated day (day.py): jobs, pods and nodes of all namespaces, from watches that survive
an API server that is away. Each event is checked (see_*), and time passes in check(), which the day calls every second.

Waits are measured in *fair* seconds: time in which the API server has answered, and the same operator has renewed the lease,
for RECOVERY at least. Nobody can expect more of an operator. The day's thread and those of the watches share the state under `lock`."""
import collections
import contextlib
import http.client
import json
import re
import socket
import threading
import time
from urllib.parse import urlsplit

from api import Refused
from invariants import Invariants

FINISHED, ENDED = ("Succeeded", "Failed"), ("Succeeded", "Failed")
ADMITTED = ("Starting", "Running", "Waiting", "Completing")
PATIENCE = 30        # fair seconds in which a waiting job must have got a message with a reason
STUCK = 25           # fair seconds that a gang may be half started beyond its time-out, and pods of a finished job stay
TURN = 6             # fair seconds for which a job of a higher priority fits while a lower one was admitted
AGAIN_MOST = 1       # times that a job may be preempted by the same other one, each time that this one has queued
SEEN = 3             # seconds within which the day and the operator see the same
RECOVERY = 8         # seconds after an outage, or a change of the leader, until everybody acts again
RENEWED = 3          # seconds without a renewal after which nobody leads (leases of FAST in day_operators.py)

# What the message of a waiting job must begin with, by phase: README.md of the operator, "Status of a job".
REASONS = {phase: [re.compile(one, re.S) for one in forms] for phase, forms in {
    "Queued": (
        r"\d+ of \d+ workers fit now; a worker asks for .*; ",
        r"quota \S+: .* asked, .* left",
        r"the jobs of a namespace may hold \d+ % of the cluster's \S+, and with this job those of \S+ would hold more",
        r"it is not known whether its workers fit \(.+\); ",
        r"fewer than \d+ of its workers got a node within \d+ s, so all were deleted; the job is tried again \d+ s after",
        r"the API server refuses a worker's pod: .{10}", r"the API server has not answered yet whether it accepts",
        r"preempts job \S+ \(priority -?\d+, this one has -?\d+\).*; waits for their workers to end",
        r"its room is being made free: waits for workers of other jobs to end",
        r"its workers could take the nodes on which other jobs are preempted for job \S+; ",
        r"it was preempted for job \S+, which is admitted first"),
    "Starting": (r"\d+ of \d+ workers run, \d+ have a node; training starts with \d+; .{10}",),
    "Waiting": (r"\d+ workers run, minWorkers is \d+; the running ones wait with their state in memory; .{10}",),
    "Restarting": (
        r"preempted by job \S+, which has a higher priority", r"the API server refuses a worker's pod: ",
        r"fewer than \d+ workers got a node within \d+ s", r"all workers start again by the rule ",
        r"a node with workers of the job is drained", r"all workers were lost", r"a worker was lost and the job is not"),
}.items()}
ANY_REASON = re.compile("(?!in the queue|new$).{10}", re.S)    # of a malformed job


class Pod:
    """The parts of a pod that are checked. job: the key of the HvdJob that owns it, or None."""

    def __init__(self, pod):
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        owner = next((o for o in meta.get("ownerReferences", []) if o.get("controller")), {})
        self.namespace, self.name, self.uid = meta["namespace"], meta["name"], meta["uid"]
        self.owner = owner.get("uid") if owner.get("kind") == "HvdJob" else None
        self.node, self.phase = spec.get("nodeName"), status.get("phase")
        self.deleting = "deletionTimestamp" in meta
        self.born = int(meta["resourceVersion"])     # of the first event that was seen of it: see_pod()
        self.requests = collections.Counter()
        for container in spec["containers"]:
            for kind, text in (container.get("resources", {}).get("requests") or {}).items():
                self.requests[kind] += amount(text)

    def ended(self):
        return self.phase in ENDED

    def alive(self):
        return not self.ended() and not self.deleting


class Seen:
    """A job as the API server has it."""

    def __init__(self):
        self.spec, self.status, self.uid = {}, {}, None
        self.since = self.half = 0             # fair seconds: when the phase began; for how long it is half started
        self.wordless = 0                      # fair seconds without a message that gives a reason
        self.created = time.monotonic()
        self.admitted = self.latest = None     # when first and last
        self.value, self.wants, self.selector, self.tolerated = 0, {}, {}, set()
        self.pods = {}                         # {uid: Pod}
        self.births = {}                       # {uid of each pod that it ever had: resourceVersion with which that came}
        self.events = collections.deque(maxlen=25)
        self.queued = 0                        # how often
        self.late_loss = False                 # a worker was lost after another had succeeded

    phase = property(lambda self: self.status.get("phase", ""))
    message = property(lambda self: self.status.get("message", ""))
    least = property(lambda self: self.spec.get("minWorkers", self.spec.get("workers", 1)))

    def learn(self, spec, priorities):
        """What a worker demands. Namespaces' LimitRanges add memory only, of which every node has plenty."""
        self.spec, pod = spec, spec["template"]["spec"]
        self.value = priorities.get(pod.get("priorityClassName"), 0)
        self.wants = collections.Counter()
        for container in pod["containers"]:
            self.wants.update({k: amount(v) for k, v in (container.get("resources", {}).get("requests") or {}).items()})
        self.selector = pod.get("nodeSelector") or {}
        self.tolerated = {one.get("key") for one in pod.get("tolerations") or []}

    def accepts(self, node):
        labels, taints = node["metadata"].get("labels", {}), node.get("spec", {}).get("taints", [])
        return (all(labels.get(k) == v for k, v in self.selector.items())
                and all(t["key"] in self.tolerated for t in taints))

    def bound(self):
        return [p for p in self.pods.values() if p.node and p.alive()]

    def malformed(self):
        return any(c["type"] == "Valid" and c["status"] == "False" for c in self.status.get("conditions", []))


class Gang:
    """A gang as it was when it, or another one of its namespace, was admitted."""

    def __init__(self, job):
        self.least, self.wants, self.births = job.least, job.wants, job.births
        self.ended = {uid for uid in job.births if uid not in job.pods or job.pods[uid].ended()}

    def missing(self, version):
        """How many of its pods did not exist yet at this version of the API server's data."""
        existed = {uid for uid, born in self.births.items() if born < version}
        return max(0, self.least - len(existed - self.ended))


class Asked:
    """What the operator asked of a quota when it admitted the job `key`: the pods that the gangs lacked. The watches of jobs,
    pods and quotas may be seconds apart on a busy machine, so what came first is told by versions, and not by the clock."""

    def __init__(self, key, version, gangs):
        self.when, self.key, self.namespace, self.version, self.gangs = time.monotonic(), key, key.split("/")[0], version, gangs

    def amount(self):
        asked = collections.Counter()
        for gang in self.gangs:
            for _ in range(gang.missing(self.version)):
                asked.update(as_quota(gang.wants))
        return asked

    def could_see(self, shown):
        """What the operator can have seen as used: the last one before its decision was written, and those that this had
        replaced for less than SEEN. shown: [(when, version, used)]."""
        before = [(when, used) for when, version, used in shown if version < self.version]
        replaced = [when for when, _ in before[1:]] + [float("inf")]
        return [used for (_, used), until in zip(before, replaced) if until > self.when - SEEN]


def as_quota(requests):
    """What a pod with these requests takes of a ResourceQuota."""
    return {"pods": 1, **{f"requests.{k}": v for k, v in requests.items()}}


def events_of(job):
    """The events of a job, each on an indented line of its own. job None: the job is not known."""
    return "".join(f"\n      {line}" for line in job.events) if job else ""


def amount(text):
    """A quantity as a number; only the forms that the day's pods use."""
    found = re.fullmatch(r"([\d.]+(?:e\d+)?)(m|Ki|Mi|Gi|k|M|G|E)?", str(text))
    if not found:
        return 0
    return float(found[1]) * {"m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1e3, "M": 1e6, "G": 1e9,
                              "E": 1e18}.get(found[2], 1)


class World(Invariants):
    def __init__(self, cluster, share, quotas, priorities):
        """share: of a namespace, in percent; quotas: {namespace: {resource: amount}}; priorities: {class: value}."""
        super().__init__(cluster, namespace=None)
        self.share, self.quotas, self.priorities = share, quotas, priorities
        self.crashes = collections.Counter()   # {job: how many of its pods were made to fail}
        self.lock, self.over = threading.RLock(), False
        self.jobs, self.pods, self.nodes, self.owners = {}, {}, {}, {}
        self.pods_version = 0                  # of the last event of a pod
        self.fair, self.last, self.holder, self.recovered = 0.0, time.monotonic(), None, 0
        self.totals = collections.deque()      # (when, Counter of all nodes' resources)
        self.overtaken = {}                    # {(job that waits, job that was admitted): since, in fair seconds}
        self.admissions = collections.Counter()
        self.preemptions, self.said = 0, set()
        self.used = {}                         # {name of a pod whose program ended: when that was first seen}
        self.pairs = collections.Counter()     # {(job, the one that preempted it, how often that one had queued): how often}
        self.shown = collections.defaultdict(collections.deque)   # {namespace: [(when, resourceVersion, used) of its quota]}
        self.overruns = collections.deque()    # (when, namespace, version, kind, used, hard) of pods beyond a quota
        self.miscounts = 0                     # of these, those that Kubernetes let in by mistake
        self.asked = collections.deque()       # Asked: what gangs that were admitted ask of their quotas

    # ---- watching

    def __enter__(self):
        super().__enter__()
        self.follow("/api/v1/nodes", self.see_node)
        self.follow("/api/v1/resourcequotas", self.see_quota)
        return self

    def __exit__(self, *_):
        self.over = True
        for connection in list(self.connections):
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except (OSError, AttributeError):
                pass    # it is just being opened or closed
        for thread in self.threads:
            thread.join(15)

    def follow(self, path, see):
        thread = threading.Thread(target=self.keep, args=(path, see), daemon=True)
        self.threads.append(thread)
        thread.start()

    def keep(self, path, see):
        """Lists and watches again and again. A list reports what was missed meanwhile."""
        known, server = {}, urlsplit(self.api.server.geturl())
        while not self.over:
            connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=60, context=self.api.context)
            self.connections.append(connection)
            try:
                version = self.list(connection, path, see, known)
                answer = self.request(connection, f"{path}?watch=1&allowWatchBookmarks=1&resourceVersion={version}")
                for line in answer:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    if event["type"] != "BOOKMARK":
                        self.hear(see, known, event["type"], event["object"])
            except (OSError, ValueError, AttributeError, http.client.HTTPException, Refused):
                pass
            finally:
                self.connections.remove(connection)
                connection.close()
            time.sleep(0.2)

    def request(self, connection, path):
        connection.request("GET", path, headers={"Authorization": f"Bearer {self.api.token}"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise Refused(answer.status, path)
        return answer

    def list(self, connection, path, see, known):
        whole = json.loads(self.request(connection, path).read())
        there = {one["metadata"]["uid"] for one in whole["items"]}
        for uid in [uid for uid in known if uid not in there]:
            self.hear(see, known, "DELETED", known[uid])
        for one in whole["items"]:
            self.hear(see, known, "MODIFIED" if one["metadata"]["uid"] in known else "ADDED", one)
        return whole["metadata"]["resourceVersion"]

    def hear(self, see, known, kind, thing):
        uid = thing["metadata"]["uid"]
        if kind == "DELETED":
            known.pop(uid, None)
        else:
            known[uid] = {"metadata": thing["metadata"], "spec": thing.get("spec", {})}
        with self.lock:
            see(kind, thing)

    # ---- failures

    def fail(self, what, key, text):
        """Notes a violated invariant, once for each job, with the job's last events."""
        if (what, key) in self.said:
            return
        self.said.add((what, key))
        self.wrong.append(f"{what}: {key}: {text}{events_of(self.jobs.get(key))}")
        print(f"WRONG {self.wrong[-1]}", flush=True)

    def used_up(self, name):
        """Only the name of a pod whose program ended, unless the pod was deleted before the operator can have seen that. A
        worker that was deleted comes back with its name if the operator did not see the deletion, or wanted fewer workers for
        a while."""
        return name in self.used

    def violated(self, text):
        """One of the invariants of the base class."""
        key = text.split()[1].rstrip(":")
        job = self.jobs.get(key.rsplit("-", 2)[0])      # of a pod's name: "team-a/fixed-55-0-2"
        self.fail("invariant", key, text + events_of(job))

    def note(self, job, text):
        job.events.append(f"{time.monotonic() - self.began:7.1f} s ({self.fair:.1f} fair) {text}")

    began = time.monotonic()

    # ---- events

    def see_node(self, kind, node):
        name = node["metadata"]["name"]
        if kind == "DELETED":
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
        total = collections.Counter()
        for one in self.nodes.values():
            total.update({k: amount(v) for k, v in one.get("status", {}).get("allocatable", {}).items()})
        self.totals.append((time.monotonic(), total))
        while len(self.totals) > 2 and self.totals[1][0] < time.monotonic() - 600:
            self.totals.popleft()

    def see_lease(self, kind, lease):
        super().see_lease(kind, lease)
        if self.holder != lease["spec"].get("holderIdentity"):
            self.recovered = time.monotonic() + RECOVERY
        self.holder = lease["spec"].get("holderIdentity")

    def see_quota(self, kind, quota):
        meta, used = quota["metadata"], quota.get("status", {}).get("used")
        if kind == "DELETED" or not used:
            return
        shown = self.shown[meta["namespace"]]
        shown.append((time.monotonic(), int(meta["resourceVersion"]), {k: amount(v) for k, v in used.items()}))
        while shown[0][0] < time.monotonic() - 10 * SEEN and len(shown) > 1:
            shown.popleft()

    def see_pod(self, kind, pod):
        super().see_pod(kind, pod)
        now = Pod(pod)
        before = self.pods.pop(now.uid, None)
        now.born = before.born if before else now.born
        self.pods_version = int(pod["metadata"]["resourceVersion"])
        self.note_used(kind, self.key(pod["metadata"]), now, pod.get("status", {}).get("conditions", []))
        key = self.owners.get(now.owner)
        job = self.jobs.get(key)
        if kind != "DELETED":
            self.pods[now.uid] = now
        if job:
            self.of_job(kind, before, now, key, job)
        if kind == "ADDED":
            self.note_overrun(now, now.born)

    def note_used(self, kind, name, now, conditions):
        """Notes the names of pods whose program has ended. The operator does not count an end that it sees after, or together
        with, the pod's deletion, and uses the name again."""
        if not now.ended() or any(c["type"] == "DisruptionTarget" for c in conditions):
            return
        if kind != "DELETED" and not now.deleting:
            self.used.setdefault(name, time.monotonic())
        elif name in self.used and time.monotonic() - self.used[name] < SEEN:
            del self.used[name]

    def of_job(self, kind, before, now, key, job):
        if kind == "DELETED":
            job.pods.pop(now.uid, None)
        else:
            job.pods[now.uid] = now
            job.births.setdefault(now.uid, now.born)
        lost = now.phase == "Failed" or (now.deleting or kind == "DELETED") and now.phase != "Succeeded"
        if lost and (job.phase == "Completing" or any(p.phase == "Succeeded" for p in job.pods.values())):
            job.late_loss = True
        if not before or (before.node, before.phase, before.deleting) != (now.node, now.phase, now.deleting) or \
                kind == "DELETED":
            self.note(job, f"pod {now.name} {kind.lower()}: {now.phase} on {now.node}{', deleting' if now.deleting else ''}")
        if now.node and now.alive() and not (before and before.node):
            self.check_share(now.namespace, key)

    def note_overrun(self, pod, version):
        """Notes a pod with which its namespace exceeds a quota. Only Kubernetes can let that happen: the API server compares
        each create with status.used and adds to it, but whenever a pod has ended the quota controller counts anew, from a
        cache that may lag behind, and writes less than there is. So the pod is excused if status.used was too low when it was
        created, and only then; judge_quotas() finds that out once the quota's versions of that moment have been seen. After an
        outage versions are missing."""
        used = collections.Counter()
        for one in self.pods.values():
            if one.namespace == pod.namespace and one.alive():   # quotas do not count pods that should be gone
                used.update(as_quota(one.requests))
        for kind, limit in self.quotas.get(pod.namespace, {}).items():
            if used[kind] > limit + 0.01 and time.monotonic() > self.recovered:
                self.overruns.append((time.monotonic(), pod.namespace, version, kind, used[kind], limit))

    def note_asked(self, key, version):
        """Notes the gangs of the namespace that the operator has just admitted. version: of the event that told of the last."""
        namespace, now = key.split("/")[0], time.monotonic()
        if now > self.recovered + RECOVERY:    # watches come back after pauses of up to 10 s (operator/api/informer.c)
            self.asked.append(Asked(key, version, [
                Gang(job) for name, job in self.jobs.items()
                if name.startswith(namespace + "/") and job.phase == "Starting" and job.latest > now - SEEN]))

    def judge_quotas(self):
        ripe = time.monotonic() - SEEN
        while self.overruns and self.overruns[0][0] < ripe:
            _, namespace, version, kind, real, limit = self.overruns.popleft()
            shown = next((used[kind] for _, at, used in reversed(self.shown[namespace]) if at < version), 0)
            if shown < real - 0.01:
                self.miscounts += 1
            else:
                self.fail("over quota", namespace, f"{kind}: {real} of {limit}, and status.used was {shown}")
        while self.asked and self.asked[0].when < ripe:
            one = self.asked[0]
            shown = self.shown[one.namespace]
            behind = not any(version > one.version for _, version, _ in shown) or self.pods_version < one.version
            if behind and one.when > ripe - 9 * SEEN:
                return     # the watch of the quotas, or of the pods, has yet to tell what came before
            self.asked.popleft()
            asked, seen = one.amount(), one.could_see(shown)
            for kind, limit in self.quotas.get(one.namespace, {}).items():
                used = min((used[kind] for used in seen), default=0)
                if asked[kind] > limit - used + 0.01:
                    told = ", ".join(f"{when - one.when:+.1f} s {version} {used[kind]:g}" for when, version, used in shown
                                     if abs(when - one.when) < 2 * SEEN)
                    self.fail("asked beyond the quota", one.key, f"{kind}: {asked[kind]} asked, hard {limit}, used {used}; at "
                                                                 f"version {one.version}, and status.used was: {told}")

    def check_share(self, namespace, key):
        """What a namespace's gangs hold never exceeds the share of the largest cluster since the oldest was admitted: the
        share is judged when workers are admitted, and nodes may be lost after that."""
        held, oldest = collections.Counter(), time.monotonic() - 10
        for name, job in self.jobs.items():
            if name.startswith(namespace + "/") and job.phase in ADMITTED:
                oldest = min(oldest, (job.latest or oldest) - 10)
                for pod in job.bound():
                    held.update(pod.requests)
        for kind in held:
            most = max((total[kind] for at, total in self.totals if at >= oldest), default=0)
            most = max(most, self.totals[-1][1][kind], next((t[kind] for at, t in reversed(self.totals) if at < oldest), 0))
            if held[kind] > most * self.share / 100 + 0.01:
                self.fail("over the share", key, f"{namespace} holds {held[kind]} {kind} of {most}, {self.share} % allowed")

    def see_job(self, kind, thing):
        super().see_job(kind, thing)
        key = self.key(thing["metadata"])
        if kind == "DELETED":
            self.owners.pop(thing["metadata"]["uid"], None)
            self.jobs.pop(key, None)
            return
        uid = thing["metadata"]["uid"]
        if key not in self.jobs:
            self.jobs[key], self.owners[uid] = Seen(), key
            self.jobs[key].since = self.fair
            self.jobs[key].pods = {p.uid: p for p in self.pods.values() if p.owner == uid}
            self.jobs[key].births = {p.uid: p.born for p in self.jobs[key].pods.values()}
        job = self.jobs[key]
        before, message = job.phase, job.message
        with contextlib.suppress(AttributeError, KeyError, TypeError):   # a malformed template
            job.learn(thing["spec"], self.priorities)
        job.status = thing.get("status", {})
        if job.phase != before or job.message != message:
            self.note(job, f"{job.phase} restarts {job.status.get('restarts')} failures {job.status.get('failures')}: "
                           f"{job.message[:400]}")
        if job.phase != before:
            job.since, job.half, job.wordless = self.fair, 0, 0
            job.queued += job.phase == "Queued"
            if job.phase == "Starting":
                self.admitted(key, job, int(thing["metadata"]["resourceVersion"]))
            if job.phase == "Restarting" and job.message.startswith("preempted by"):
                self.preempted(key, job)
        if job.status.get("failures", 0) > self.crashes[key]:
            self.fail("an attempt too many", key, f"{job.status['failures']} failures, but {self.crashes[key]} crashes")

    def preempted(self, key, job):
        by = job.message.split()[3].rstrip(",")
        pair = key, by, self.jobs[by].queued if by in self.jobs else 0
        self.preemptions += 1
        self.pairs[pair] += 1
        if self.pairs[pair] > AGAIN_MOST:
            events = "".join(f"\n        {line}" for line in self.jobs[by].events) if by in self.jobs else ""
            self.fail("preempted again and again", key, f"{self.pairs[pair]} times by {by}{events}")

    # ---- order

    def admitted(self, key, job, version):
        job.admitted, job.latest = job.admitted or time.monotonic(), time.monotonic()
        self.admissions[key.split("/")[0]] += 1
        self.note_asked(key, version)
        for other, waiting in self.jobs.items():
            if self.may_complain(waiting) and waiting.value > job.value:
                self.overtaken[other, key] = self.fair

    def may_complain(self, job):
        return (job.phase == "Queued" and self.fair - job.since > 5 and " workers fit now" in job.message
                and "holds the nodes" not in job.message)

    def fits(self, job, with_pods_of):
        """Would its gang fit beside all pods but those of the other job? While an admitted gang has no nodes yet, that is not
        known, and the answer is no. Workers beyond minWorkers without a node take no room from others."""
        if any(len(j.bound()) < j.least for j in self.jobs.values() if j.phase == "Starting" and j is not with_pods_of):
            return False
        used = collections.defaultdict(collections.Counter)
        for pod in self.pods.values():
            if pod.node and not pod.ended() and pod.uid not in with_pods_of.pods:
                used[pod.node].update({**pod.requests, "pods": 1})
        left = job.least
        for name, node in self.nodes.items():
            if node.get("spec", {}).get("unschedulable") or not job.accepts(node):
                continue
            room = {k: amount(v) - used[name][k] for k, v in node.get("status", {}).get("allocatable", {}).items()}
            left -= max(0, int(min((room.get(k, 0) + 1e-6) // v for k, v in {**job.wants, "pods": 1}.items() if v > 0)))
        return left <= 0

    def check_order(self):
        for (other, key), since in list(self.overtaken.items()):
            waiting, job = self.jobs.get(other), self.jobs.get(key)
            if not waiting or not job or not self.may_complain(waiting) or job.phase not in ADMITTED:
                del self.overtaken[other, key]
            elif not self.fits(waiting, with_pods_of=job):
                self.overtaken[other, key] = self.fair
            elif self.fair - since > TURN:
                self.fail("overtaken", other, f"{key} of a lower priority was admitted {TURN} s ago, and this one fits: "
                                              f"{waiting.message[:300]}")

    # ---- time

    def check(self, away):
        """Called every second by the day."""
        with self.lock:
            now = time.monotonic()
            self.judge_quotas()
            passed, self.last = now - self.last, now
            renewed = self.renewals and now - self.renewals[-1][0] < RENEWED
            if away:
                self.recovered = now + RECOVERY
            if now < self.recovered or not renewed or not self.holder or passed > 5:
                return
            self.fair += passed
            for key, job in self.jobs.items():
                self.check_half(key, job, passed)
                self.check_words(key, job, passed)
                if job.phase in FINISHED and self.fair - job.since > STUCK:
                    left = [p.name for p in job.pods.values() if p.alive() and (not p.node or p.node in self.nodes)]
                    if left:
                        self.fail("pods of a finished job", key, ", ".join(left[:5]))
            self.check_order()

    def check_half(self, key, job, passed):
        bound = len(job.bound())
        job.half = job.half + passed if job.phase in ("Queued", "Starting") and 0 < bound < job.least else 0
        limit = job.spec.get("gang", {}).get("timeoutSeconds", 300) + STUCK
        if job.half > limit:
            self.fail("half started", key, f"{bound} of {job.least} workers have nodes, for {job.half:.0f} s")

    def check_words(self, key, job, passed):
        known = REASONS.get(job.phase, [])
        reasonable = job.phase in ("Running", "Completing", "Suspended", *FINISHED) or \
            any(one.match(job.message) for one in known) or \
            ("/broken-" in key or job.malformed()) and ANY_REASON.match(job.message)
        job.wordless = 0 if reasonable else job.wordless + passed
        if job.wordless > PATIENCE:
            self.fail("no reason", key, f"phase {job.phase!r}, message {job.message!r}")
