# SPDX-License-Identifier: Apache-2.0
"""Malformed HvdJobs with the expected result of each: a table of changes to a valid job."""
import copy

SCHEMA = "schema"      # refused by the API server: schema or CEL rules of k8s/crd, or the rules for all objects
CONDITION = "condition"   # accepted; the condition Valid is False and says why
PODS = "pods"          # accepted; its pods are refused, and the job's message has the API server's text
WAITS = "waits"        # accepted; the job waits, and its message says for what
# `want` is part of what the user reads: the refusal, or the job's message.

HOSTILE = "gates\u202e\u200d\U0001f4a9'\"\\\n${HVD_TOKEN}<script>"
HUGE = 1 << 62


def good():
    return {"apiVersion": "hvd.dev/v1alpha1", "kind": "HvdJob", "metadata": {"name": "bad", "namespace": "default"},
            "spec": {"workers": 1, "gang": {"backend": "gates"}, "runPolicy": {}, "doctor": {},
                     "template": {"metadata": {"annotations": {}, "labels": {}},
                                  "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                                      {"name": "main", "image": "none", "command": ["train"],
                                       "resources": {"requests": {"cpu": "100m"}}}]}}}}


INTS = {"workers": (1, 10000), "minWorkers": (1, 10000), "maxWorkers": (1, 10000), "slotsPerWorker": (1, 1024),
        "gang.timeoutSeconds": (1, 31536000), "gang.probeSeconds": (0, 31536000), "doctor.level": (0, 2),
        "runPolicy.ttlSecondsAfterFinished": (0, 31536000), "runPolicy.activeDeadlineSeconds": (1, 31536000),
        "runPolicy.backoffLimit": (0, 1000000)}
WORDS = ("gang.backend", "doctor.policy", "runPolicy.cleanPodPolicy")
MAPS = ("gang", "doctor", "runPolicy", "template")
FIRST = "template.spec.containers.0"


def at(path):
    return [int(part) if part.isdigit() else part for part in path.split(".")]


def put(job, path, value):
    *parts, last = at(path)
    for part in parts:
        job = job[part] if isinstance(part, int) else job.setdefault(part, {})
    job[last] = value


def drop(job, path):
    *parts, last = at(path)
    for part in parts:
        job = job[part]
    del job[last]


def spec(path, value, how, want):
    """A job with one field of the spec changed."""
    def change(job):
        put(job["spec"], path, value)
    return (f"{path} = {repr(value)[:40]}", change, how, want)


def pod(field, value, want, how=PODS):
    return spec(f"template.spec.{field}", value, how, want)


def first(field, value, want, how=PODS):
    return spec(f"{FIRST}.{field}", value, how, want)


def without(path, want):
    return (f"without {path}", lambda job: drop(job["spec"], path), SCHEMA, want)


def named(name, want):
    return (f"name {name[:60]!r}", lambda job: job["metadata"].update(name=name), SCHEMA, want)


def numbers():
    for path, (least, most) in INTS.items():
        field = path.rsplit(".", maxsplit=1)[-1]
        for value in (least - 1, most + 1, -HUGE, HUGE, str(least), 1.5, True, [1], {"value": 1}):
            yield spec(path, value, SCHEMA, field)


def words():
    for path in WORDS:
        field = path.rsplit(".", maxsplit=1)[-1]
        for value in ("", "GATES", "fail ", 7, True, ["Running"], {}, HOSTILE, "x" * 100000):
            yield spec(path, value, SCHEMA, field)
    for value in ("yes", 1, "", []):
        yield spec("runPolicy.suspend", value, SCHEMA, "suspend")
        yield spec("keepPlaces", value, SCHEMA, "keepPlaces")
    for value in (7, ["x"], "m" * 254):
        yield spec("runPolicy.managedBy", value, SCHEMA, "managedBy")


def shapes():
    for path in MAPS:
        for value in ("text", 7, True, [1], HOSTILE):
            yield spec(path, value, SCHEMA, path)
    for value in ("text", 7, [], None):
        yield (f"spec = {value!r}", lambda job, value=value: job.update(spec=value), SCHEMA, "spec")
    yield ("without a spec", lambda job: job.pop("spec"), SCHEMA, "spec")
    for path in ("worker", "gang.backends", "doctor.levels", "runPolicy.restartPolicy", "replicas"):
        yield spec(path, 1, SCHEMA, "unknown field")
    for path, want in (("template", "template"), ("template.spec", "spec"), ("template.spec.containers", "containers"),
                       (f"{FIRST}.name", "name"), (f"{FIRST}.command", "no command")):
        yield without(path, want)


def rules():
    """runPolicy.failurePolicy."""
    codes = {"operator": "In", "values": [1]}
    for bad, want in (({}, "action"), ({"action": "Retry", "onExitCodes": codes}, "action"),
                      ({"action": "Count"}, "either onExitCodes or onPodConditions"),
                      ({"action": "Count", "onExitCodes": codes, "onPodConditions": [{"type": "x"}]}, "either"),
                      ({"action": "Count", "onExitCodes": {**codes, "values": [0]}}, "0 is not a failure"),
                      ({"action": "Count", "onExitCodes": {**codes, "values": [256]}}, "values"),
                      ({"action": "Count", "onExitCodes": {**codes, "values": []}}, "values"),
                      ({"action": "Count", "onExitCodes": {**codes, "operator": "in"}}, "operator"),
                      ({"action": "Count", "onPodConditions": [{"type": ""}]}, "type"),
                      ({"action": "Count", "onExitCodes": codes, "name": "x" * 64}, "name")):
        yield spec("runPolicy.failurePolicy.rules", [bad], SCHEMA, want)
    yield spec("runPolicy.failurePolicy.rules", [{"action": "Count", "onExitCodes": codes}] * 21, SCHEMA, "rules")
    yield spec("runPolicy.failurePolicy.rules", [], SCHEMA, "rules")
    yield spec("runPolicy.failurePolicy.rules", [{"action": "Count", "onExitCodes": {**codes, "containerName": "nosuch"}}],
               CONDITION, "containerName")


def together():
    yield ("workers below min", lambda job: job["spec"].update(workers=1, minWorkers=2), SCHEMA, "less than minWorkers")
    yield ("workers above max", lambda job: job["spec"].update(workers=3, maxWorkers=2), SCHEMA, "more than maxWorkers")
    yield ("min above max", lambda job: job["spec"].update(workers=2, minWorkers=3, maxWorkers=2), SCHEMA, "minWorkers")


def names():
    yield named("x" * 49, "more than 48 characters")
    yield named("x" * 254, "Invalid value")
    yield named("a.b", "has a dot")
    for name in ("Upper", "-begins", "ends-", "under_score", "sp ace", "\u00fcml\u00e4ut", "a/b", "../x", "a\u202eb", "x\nb"):
        yield named(name, "name")


def containers():
    for value, want in (([], "containers"), ({}, "containers"), ("x", "containers"), ([7], "containers"), (None, "containers"),
                        ([{"name": "a"}], "no command"), ([{"command": ["x"]}], "name"),
                        ([{"name": "a", "command": []}], "no command"), ([{"name": "a", "command": "x"}], "command"),
                        ([{"name": "a", "command": [7]}], "command"), ([{"name": "a" * 64, "command": ["x"]}], "name"),
                        ([{"name": f"c{i}", "command": ["x"]} for i in range(101)], "containers")):
        yield pod("containers", value, want, SCHEMA)
    for field, value, want in (("name", "Upper", "name"), ("name", "a b", "name"), ("name", "", "name"), ("image", "", "image"),
                               ("imagePullPolicy", "Sometimes", "imagePullPolicy"), ("imagePullPolicy", HOSTILE, "imagePullPolicy"),
                               ("env", [{"name": ""}], "env"), ("env", [{"name": "A", "value": 7}], "env"), 
                               ("ports", [{"containerPort": 99999}], "containerPort"),
                               ("ports", [{"containerPort": "x"}], "containerPort"),
                               ("resources", {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}, "cpu"),
                               ("volumeMounts", [{"name": "nowhere", "mountPath": "/x"}], "nowhere"),
                               ("workingDir", 7, "workingDir"), ("stdin", "x", "stdin"),
                               ("securityContext", {"runAsUser": -1}, "runAsUser"),
                               ("terminationMessagePolicy", "Never", "terminationMessagePolicy"),
                               ("livenessProbe", {"periodSeconds": 1}, "livenessProbe")):
        yield first(field, value, want)


def pods():
    for field in ("args", "env", "volumeMounts", "resources", "securityContext", "readinessProbe"):
        yield first(field, "x", f"{field}: want a ", CONDITION)
    for field in ("volumes", "initContainers", "tolerations", "securityContext"):
        yield pod(field, 7, f"{field}: want a ", CONDITION)
    for field in ("metadata", "metadata.labels", "metadata.annotations"):
        yield spec(f"template.{field}", "x", CONDITION, f"{field}: want a mapping")
    yield pod("restartPolicy", "Always", "restartPolicy", CONDITION)
    yield pod("restartPolicy", "OnFailure", "restartPolicy", CONDITION)
    yield pod("restartPolicy", HOSTILE, "restartPolicy", CONDITION)
    yield pod("nodeName", "node-0", "kubernetes.io/hostname", CONDITION)
    yield pod("volumes", [{"name": "hvd-shm", "emptyDir": {}}], "hvd-", CONDITION)
    yield pod("volumes", [{"name": "hvd-token", "secret": {"secretName": "x"}}], "hvd-", CONDITION)
    for path in ("/hvd", "/hvd/lib", "/hvd/"):
        yield first("volumeMounts", [{"name": "x", "mountPath": path}], "/hvd", CONDITION)
    for value in ("lots", "0", "-1Gi", "9Ei9", HOSTILE):
        yield spec("template.metadata.annotations", {"hvd.dev/shm-size": value}, CONDITION, "shm-size")
    yield ("more shm than memory", lambda job: (
        put(job["spec"], "template.metadata.annotations", {"hvd.dev/shm-size": "2Gi"}),
        put(job["spec"], f"{FIRST}.resources", {"limits": {"memory": "1Gi"}})), CONDITION, "memory limit")
    for value in ("much", "-1", "", HOSTILE, {"x": 1}):
        yield first("resources", {"requests": {"cpu": value}}, "cpu", CONDITION)
    for value in ("1e400", "9E", "1000"):
        yield first("resources", {"requests": {"cpu": value}}, "no node for it has that much cpu", WAITS)
    yield pod("tolerations", [{"operator": "Maybe"}], "operator Maybe is not known", CONDITION)
    yield pod("nodeSelector", {"disk": "none-such"}, "disk", WAITS)
    for field, value, want in (("activeDeadlineSeconds", 0, "activeDeadlineSeconds"), ("hostname", "Not A Host", "hostname"),
                               ("priorityClassName", "none-such", "none-such"), ("serviceAccountName", "nobody", "nobody"),
                               ("runtimeClassName", "none-such", "none-such"), ("nodeSelector", {"a b": "x"}, "nodeSelector"),
                               ("dnsPolicy", "Guess", "dnsPolicy"), ("hostAliases", [{"ip": "x"}], "hostAliases"),
                               ("initContainers", [{"name": "i"}], "image"),
                               ("initContainers", [{"name": "main", "image": "x"}], "main"),
                               ("ephemeralContainers", [{"name": "e", "image": "x"}], "ephemeral"),
                               ("volumes", [{"name": "v", "hostPath": {"path": "../.."}}], "path"),
                               ("volumes", [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}], "Duplicate"),
                               ("imagePullSecrets", "x", "imagePullSecrets"), ("overhead", {"cpu": "1"}, "RuntimeClass"),
                               ("topologySpreadConstraints", [{"maxSkew": 0}], "topologySpreadConstraints"),
                               ("securityContext", {"fsGroup": "x"}, "fsGroup"), ("os", {"name": "cp/m"}, "os")):
        yield pod(field, value, want)
    for labels in ({"a": "b c"}, {"a/b/c": "x"}, {"k" * 64: "x"}, {"a": "v" * 64}, {"a": HOSTILE}):
        yield spec("template.metadata.labels", labels, PODS, "label")
    yield spec("template.metadata.annotations", {"big": "x" * 300000}, PODS, "annotations")
    yield first("env", [{"name": "BIG", "value": "x" * 3_200_000}], "too large", SCHEMA)


def deep(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


def unread():
    """JSON that the API server accepts and jansson does not."""
    for path, value, want in ((f"{FIRST}.env", [{"name": "A", "value": "a\u0000b"}], "U+0000"),
                              ("template.metadata.annotations", {"a": "\u0000"}, "U+0000"),
                              ("template.spec.priority", 10**20, "18 digits"), ("template.spec.more", deep(3000), "within each other")):
        yield spec(path, value, CONDITION, want)
    yield ("U+0000 in an annotation of the job", lambda job: job["metadata"].update(annotations={"a": "\u0000"}), CONDITION, "U+0000")


def all_of_them():
    """(name, the job, how it is refused, part of the reason)."""
    rows = [row for part in (numbers, words, shapes, rules, together, names, containers, pods, unread) for row in part()]
    for number, (name, change, how, want) in enumerate(rows):
        job = copy.deepcopy(good())
        job["metadata"]["name"] = f"bad-{number}"
        change(job)
        yield name, job, how, want
