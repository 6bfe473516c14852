#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# takes: 20 s, waiting
# needs: kubernetes
"""A real node: containerd and kubelet run a pod; the host reaches pods and services; when the owner is killed, nothing is
left and no setting of the machine has changed.
timeout: 3000"""
import json
import os
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import case  # noqa: E402
import cluster as clusters  # noqa: E402
import image  # noqa: E402
import node as nodes  # noqa: E402
from api import Api, wait_until  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
PODS = "/api/v1/namespaces/default/pods"


def settings():
    """Global settings and folders that a node could have changed."""
    state = {}
    for name in [*nodes.SYSCTLS, "net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding"]:
        try:
            with open("/proc/sys/" + name, encoding="ascii") as f:
                state[name] = f.read()
        except OSError:
            pass
    for path in ("/var/lib/kubelet", "/run/containerd", "/var/log/pods", "/opt/containerd"):
        state[path] = os.path.exists(path)
    return state


def traces(net):
    """Interfaces, routes and iptables rules of this machine that name the network of one cluster. Others come and go with
    the clusters and containers of tests that run meanwhile."""
    names = (net.interface + " ", net.host, net.node, *(subnet[:-len("0/24")] for subnet in (net.pods, net.services)))
    lines = []
    for command in (["ip", "-oneline", "address"], ["ip", "route"], ["iptables-save"]):
        lines += subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    return [line for line in lines if any(name in line + " " for name in names)]


def pod(name, command=None, **more):
    container = {"name": "main", "image": image.PAUSE, **more}
    if command:
        container["command"] = command
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}


class Node(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = settings()
        script = f'{HERE}/cluster.py start --real --owner $$ && read -r _'
        cls.owner = subprocess.Popen(["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        folder = cls.owner.stdout.readline().strip()
        if not folder:
            raise RuntimeError("the cluster has not started")
        cls.cluster = clusters.Cluster(folder=folder).attach()
        cls.net = cls.cluster.network
        assert traces(cls.net), "the cluster's network is not seen"
        print("seconds:", json.dumps(cls.cluster.ready), file=sys.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.owner.kill()
        cls.owner.wait()
        cls.owner.stdin.close()
        cls.owner.stdout.close()
        wait_until("nothing to be left", 30, lambda: not case.left_of(cls.cluster.folder), 0.1)
        changed = {name: (cls.before.get(name), now) for name, now in settings().items() if now != cls.before.get(name)}
        assert not changed, f"the node has changed the machine (before, after): {changed}"
        assert not traces(cls.net), f"the node has left its network: {traces(cls.net)}"

    def status(self, name):
        return self.cluster.api.get(f"{PODS}/{name}")["status"]

    def run_pod(self, body, phase="Running"):
        name = body["metadata"]["name"]
        begin = time.monotonic()
        self.cluster.api.create(PODS, body)
        wait_until(f"pod {name} to be {phase}", 60, lambda: self.status(name).get("phase") == phase)
        print(f"pod {name}: {phase} after {time.monotonic() - begin:.2f} s", file=sys.stderr)
        return self.status(name)

    def test_pod_runs_and_ends(self):
        self.run_pod(pod("runs"))
        self.run_pod(pod("fails", ["/pause", "0", "3"]), "Failed")
        self.assertEqual(self.status("fails")["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3)
        self.cluster.kubectl("delete", "pod", "runs", "fails", "--timeout=60s")

    def test_reached_from_here(self):
        """Reaches a pod's address from the host, the kubelet from the API server, and a Service through kube-proxy."""
        address = self.run_pod(pod("reached"))["podIP"]
        with self.assertRaises(ConnectionRefusedError):   # refused by the pod, where nothing listens
            socket.create_connection((address, 9), timeout=10)
        with self.assertRaises(subprocess.CalledProcessError) as caught:   # from the API server to the kubelet
            self.cluster.kubectl("exec", "reached", "--", "/pause", "0", "4")
        self.assertEqual(caught.exception.returncode, 4)
        service = self.cluster.api.get("/api/v1/namespaces/default/services/kubernetes")["spec"]["clusterIP"]
        api = Api(f"https://{service}", self.cluster.ca, timeout=2)
        wait_until("the Service of the API server", 30, lambda: self.answers(api))
        api.close()
        self.cluster.kubectl("delete", "pod", "reached", "--timeout=60s")

    @staticmethod
    def answers(api):
        try:
            return api.get("/readyz") == "ok"
        except OSError:
            return False

    def test_node_is_lost(self):
        """Stops the whole node at once, like a power failure, and starts it again."""
        before = self.members()
        self.assertGreater(len(before), 3)
        self.cluster.ask("stop node")
        wait_until("its processes to be gone", 30,
                   lambda: not [pid for pid in before if os.path.exists(f"/proc/{pid}")])
        self.cluster.ask("start node")
        self.run_pod(pod("back"))
        self.cluster.kubectl("delete", "pod", "back", "--timeout=60s")

    def members(self):
        """The processes of the node, by their pid namespace: its first process is the kubelet's parent."""
        kubelet = [pid for pid, line in case.processes(self.cluster.folder).items() if "kubelet" in line]
        return case.same_namespace(kubelet[0])


if __name__ == "__main__":
    case.main("test_node", clusters.check_real)
