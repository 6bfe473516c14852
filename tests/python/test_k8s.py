#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# takes: 3 s, waiting
"""k8s/: every file is YAML with a kind, kustomizations name existing files, the schema of HvdJob has the fields that
hvdrun knows, rights have no wildcards, and the examples run with hvdrun -f."""

import json
import os
import re
import subprocess
import sys
import tempfile

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
K8S = os.path.join(ROOT, "k8s")


CONFIGURATION = "image-fields.yaml"    # of kustomize itself: no object


def files():
    for folder, _, names in os.walk(K8S):
        for name in sorted(names):
            if name.endswith(".yaml") and name != CONFIGURATION:
                yield os.path.join(folder, name)


def documents(path):
    with open(path, encoding="utf-8") as f:
        return [d for d in yaml.safe_load_all(f) if d is not None]


def test_files():
    for path in files():
        docs = documents(path)
        assert docs, path
        for doc in docs:
            assert doc["kind"] and doc["apiVersion"], path
            if os.path.basename(path) != "kustomization.yaml":
                assert doc["metadata"]["name"], path
                continue
            for part in doc["resources"] + doc.get("configurations", []):
                there = os.path.join(os.path.dirname(path), part)
                if os.path.isdir(there):
                    there = os.path.join(there, "kustomization.yaml")
                assert os.path.isfile(there), f"{path}: {part}"


def schema():
    (crd,) = documents(os.path.join(K8S, "crd", "hvdjobs.yaml"))
    (version,) = crd["spec"]["versions"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.workers"
    assert "status" in version["subresources"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def test_fields():
    """The schema and agent/jobfields.c have the same fields."""
    with open(os.path.join(ROOT, "agent", "jobfields.c"), encoding="utf-8") as f:
        known = set(re.findall(r'\{"(spec[.\w]*)", "(\w+)"', f.read()))
    spec = schema()["spec"]["properties"]
    have = {("spec", name) for name in spec}
    for name in ("gang", "doctor", "runPolicy"):
        have |= {(f"spec.{name}", field) for field in spec[name]["properties"]}
    assert have == known, have ^ known


def test_status():
    """The operator writes the fields that printer columns and scale read."""
    with open(os.path.join(ROOT, "operator", "objects", "hvdjob_status.c"), encoding="utf-8") as f:
        source = f.read()
    for name in schema()["status"]["properties"]:
        assert f'"{name}"' in source, name


def test_rights():
    for path in files():
        for doc in documents(path):
            for rule in doc.get("rules", []):
                words = rule["verbs"] + rule["resources"] + rule["apiGroups"]
                assert "*" not in words, path
                assert "pods/exec" not in rule["resources"], path
                if "secrets" in rule["resources"]:
                    assert not {"list", "watch"} & set(rule["verbs"]), path


def test_rights_of_tenants():
    """Kubernetes' roles admin and edit may do everything with jobs, and view may read them; none may write a status."""
    read = {"get", "list", "watch"}
    write = read | {"create", "delete", "deletecollection", "patch", "update"}
    expected = {"hvdjobs-edit": ({"admin", "edit"}, {"hvdjobs": write, "hvdjobs/scale": {"get", "patch", "update"},
                                                     "hvdjobs/status": {"get"}}),
                "hvdjobs-view": ({"admin", "edit", "view"}, {"hvdjobs": read, "hvdjobs/scale": {"get"},
                                                             "hvdjobs/status": {"get"}})}
    assert "tenants.yaml" in documents(os.path.join(K8S, "crd", "kustomization.yaml"))[0]["resources"]
    found = {}
    for role in documents(os.path.join(K8S, "crd", "tenants.yaml")):
        labels = role["metadata"]["labels"]
        assert set(labels.values()) == {"true"}
        rules = {one: set(rule["verbs"]) for rule in role["rules"] for one in rule["resources"]}
        assert {group for rule in role["rules"] for group in rule["apiGroups"]} == {"hvd.dev"}
        found[role["metadata"]["name"]] = ({name.split("aggregate-to-")[1] for name in labels}, rules)
    assert found == expected, found


def test_rights_that_the_doctor_asks_for():
    """hvd-doctor's check k8s-rbac passes in a pod of an operator that has only its own namespace's Roles."""
    with open(os.path.join(ROOT, "diagnostics", "probes", "kubernetes.c"), encoding="utf-8") as f:
        table = re.search(r"rights\[\] = \{(.*?)\n\};", f.read(), re.S).group(1)
    asked = re.findall(r'\{(\w+|"[\w.]*"), "(\w+)", "(\w*)", "(\w+)", (?:NULL|"([\w-]+)")\}', table)
    assert len(asked) == table.count("{") >= 14, table
    rules = [rule for path in ("overlays/namespaced/rights.yaml", "operator/own-role.yaml")
             for doc in documents(os.path.join(K8S, path)) for rule in doc.get("rules", [])]
    for group, resource, part, verb, name in asked:
        group = "hvd.dev" if group == "GROUP" else group.strip('"')
        resource += f"/{part}" if part else ""
        assert any(group in rule["apiGroups"] and resource in rule["resources"] and verb in rule["verbs"]
                   and ("resourceNames" not in rule or name in rule["resourceNames"]) for rule in rules), (verb, resource)


def constant(path, name):
    """The value of a #define."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return re.search(rf'#define {name}\s+"?([^"\s]+)', f.read()).group(1)


def test_images():
    """Every image is one of make images, of this version, and none would be pulled from a registry."""
    version = constant("core/include/hvd.h", "HVD_VERSION")
    names = {f"localhost/hvd-{name}:{version}" for name in ("bundle", "operator", "example")}
    found = set()
    for path in files():
        with open(path, encoding="utf-8") as f:
            here = set(re.findall(r"\S*hvd-(?:bundle|operator|example):\S+", f.read()))
        assert here <= names, path
        found |= here
    assert found == names, names - found
    (site,) = documents(os.path.join(K8S, "overlays", "site", "kustomization.yaml"))
    renamed = {f"{one['name']}:{one['newTag']}" for one in site["images"]}
    assert renamed == names - {f"localhost/hvd-example:{version}"}, renamed


def ports_of(deployment):
    return [port for one in deployment["spec"]["template"]["spec"]["containers"] for port in one.get("ports", [])]


def test_ports():
    """Deployment, services and policies name the port of the coordinator plane."""
    port = int(constant("operator/link/plane_types.h", "PLANE_PORT"))
    for name in ("deployment.yaml", "service.yaml"):
        (number,) = {part[key] for doc in documents(os.path.join(K8S, "operator", name))
                     for part in (ports_of(doc) if doc["kind"] == "Deployment" else doc["spec"]["ports"])
                     if part["name"] == "agents"
                     for key in ("containerPort", "port") if key in part}
        assert number == port, name
    for name in ("job-network.yaml", "operator-network.yaml"):
        (policy,) = documents(os.path.join(K8S, "overlays", "restricted-network", name))
        rules = policy["spec"]["egress" if name.startswith("job") else "ingress"]
        assert port in {p["port"] for rule in rules for p in rule.get("ports", [])}, name


def dashboard():
    with open(os.path.join(K8S, "monitoring", "dashboard.json"), encoding="utf-8") as f:
        return json.load(f)


def metrics_of(board):
    """The metrics in its expressions; of a histogram without the suffix."""
    text = json.dumps(board)
    return {re.sub(r"_bucket$", "", name) for name in re.findall(r"\bhvd_[a-z_]+", text)}


def test_dashboard():
    """The dashboard shows exactly the operator's metrics. (A test in the cluster checks that they are exported.)"""
    sources = ""
    for path in ("operator.c", "coordination_metrics.c", "driver/driver_metrics.c"):
        with open(os.path.join(ROOT, "operator", path), encoding="utf-8") as f:
            sources += f.read()
    known, shown = set(re.findall(r'"(hvd_[a-z_]+)"', sources)), metrics_of(dashboard())
    assert shown == known, shown ^ known
    panels = [p for p in dashboard()["panels"] if p["type"] != "row"]
    assert all(p["targets"] and all(t["expr"] for t in p["targets"]) for p in panels)
    assert len({p["id"] for p in dashboard()["panels"]}) == len(dashboard()["panels"])


def test_restricted():
    """The operator, and the example that claims it, pass pod security "restricted"."""
    for path in ("operator/deployment.yaml", "examples/mnist.yaml"):
        (doc,) = documents(os.path.join(K8S, path))
        spec = doc["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0, path
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, path
        for container in spec["containers"]:
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False, path
            assert rights["capabilities"] == {"drop": ["ALL"]}, path
            assert rights["readOnlyRootFilesystem"] is True, path
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"], path
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= {"emptyDir", "configMap", "secret", "projected"}, path


def test_plane_has_no_rights():
    """The container that parses what tenants send gets no token of the service account, and is another user."""
    (doc,) = documents(os.path.join(K8S, "operator", "deployment.yaml"))
    spec = doc["spec"]["template"]["spec"]
    operator, plane = (next(c for c in spec["containers"] if c["name"] == name) for name in ("operator", "plane"))
    assert spec["automountServiceAccountToken"] is False and not spec.get("shareProcessNamespace")
    tokens = {v["name"] for v in spec["volumes"] if "projected" in v}
    assert tokens & {m["name"] for m in operator["volumeMounts"]}
    assert {m["name"] for m in plane["volumeMounts"]} == {"plane"} and not plane.get("env")
    user = plane["securityContext"]["runAsUser"]
    assert user != spec["securityContext"]["runAsUser"] and f"--plane-uid={user}" in operator["args"]
    assert [p["name"] for p in plane["ports"]] == ["agents"] and "agents" not in [p["name"] for p in operator["ports"]]


def test_examples():
    """hvdrun runs each example, with another command."""
    hvdrun = os.path.join(ROOT, os.environ.get("BUILD", "build"), "hvdrun")
    folder = os.path.join(K8S, "examples")
    for name in sorted(os.listdir(folder)):
        (job,) = documents(os.path.join(folder, name))
        job["spec"]["template"]["spec"]["containers"][0]["command"] = ["true"]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            yaml.safe_dump(job, f)
            f.flush()
            run = subprocess.run([hvdrun, "-f", f.name], capture_output=True, text=True, timeout=60, check=False)
        assert run.returncode == 0, name + run.stderr


def main():
    for name, test in sorted(globals().items()):
        if name.startswith("test_"):
            test()
            print(f"ok {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
