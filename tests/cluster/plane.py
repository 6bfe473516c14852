# SPDX-License-Identifier: Apache-2.0
"""The command line of each program of the control plane. Pure: takes a setting, returns argument lists.

cluster.py writes the setting for the supervisor (setting.json):
    folder      where everything of this cluster is
    programs    {name: path}
    address     where the API server listens; port
    network     None, or the number of a network.Network if there is a real node
    nodes       {"kwok": how many, "real": bool}
    capacity    of a KWOK node: {"cpu": "8", "memory": "32Gi", "pods": "110"}
    gates       {feature: bool}, for all programs that have feature gates
    runtime     list for --runtime-config
    more        {program: more arguments}
    limit       requests per second of each client
    owner       the process with which the cluster ends, or 0"""
import json
import os

import network
import pki

SERVICES = "10.96.0.0/24"       # without a network of its own
LOOPBACK = "127.0.0.1"


class Plane:
    def __init__(self, setting):
        self.setting = setting
        self.folder = setting["folder"]
        self.keys = pki.Keys(self.path("keys"))
        self.server = f"https://{setting['address']}:{setting['port']}"
        self.net = None if setting["network"] is None else network.Network(setting["network"])

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def kubeconfig(self, user):
        return self.path(user.replace("system:", "").replace(":", "-") + ".kubeconfig")

    def make_keys(self):
        services = self.net.services if self.net else SERVICES
        first = services.rsplit(".", 1)[0] + ".1"
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", LOOPBACK, first]
        node = [network.NODE] if self.setting["nodes"]["real"] else []
        self.keys.make(sorted({*names, self.setting["address"]}), node)
        for user in self.keys.tokens:
            self.keys.write_kubeconfig(self.kubeconfig(user), self.server, user)

    def command(self, name, *arguments):
        gates = ",".join(f"{gate}={str(on).lower()}" for gate, on in self.setting["gates"].items())
        gated = [f"--feature-gates={gates}"] if gates and name.startswith("kube") else []
        return [self.setting["programs"][name], *arguments, *gated, *self.setting["more"].get(name, [])]

    # etcd listens on a socket in the private folder, so that other users cannot read it.
    def etcd_socket(self):
        return "unix://" + self.path("etcd.sock")

    def etcd(self):
        name = "http://localhost:1"   # for other members of etcd, which do not exist
        return self.command(
            "etcd", "--data-dir", self.path("etcd"), "--listen-client-urls", self.etcd_socket(),
            "--advertise-client-urls", name, "--listen-peer-urls", "unix://" + self.path("peer.sock"),
            "--initial-advertise-peer-urls", name, "--initial-cluster", "default=" + name,
            "--unsafe-no-fsync", "--quota-backend-bytes", str(4 << 30), "--log-level", "warn")

    def apiserver(self):
        keys, setting = self.keys, self.setting
        runtime = [f"--runtime-config={','.join(setting['runtime'])}"] if setting["runtime"] else []
        # Without a real node no pod can reach the Service kubernetes, so the API server publishes no address for it.
        reach = ["--endpoint-reconciler-type=none"] if not self.net else []
        return self.command(
            "kube-apiserver", f"--etcd-servers={self.etcd_socket()}", f"--bind-address={setting['address']}",
            f"--secure-port={setting['port']}", f"--advertise-address={setting['address']}",
            f"--cert-dir={self.path('keys')}", f"--tls-cert-file={keys.server_crt}",
            f"--tls-private-key-file={keys.server_key}", f"--client-ca-file={keys.ca_crt}",
            f"--token-auth-file={keys.tokens_csv}", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={keys.accounts_pub}",
            f"--service-account-signing-key-file={keys.accounts_key}",
            f"--service-cluster-ip-range={self.net.services if self.net else SERVICES}",
            "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true",
            "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000", *reach, *runtime)

    def controller_manager(self):
        user = self.kubeconfig("system:kube-controller-manager")
        return self.command(
            "kube-controller-manager", f"--kubeconfig={user}", "--leader-elect=false", "--secure-port=0",
            f"--service-account-private-key-file={self.keys.accounts_key}", f"--root-ca-file={self.keys.ca_crt}",
            "--use-service-account-credentials=true", *self.limits())

    def scheduler(self):
        """The scheduler takes its limits only from a file."""
        limit = self.setting["limit"]
        config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
                  "leaderElection": {"leaderElect": False},
                  "clientConnection": {"kubeconfig": self.kubeconfig("system:kube-scheduler"), "qps": limit,
                                       "burst": limit}}
        self.write("scheduler.json", json.dumps(config))
        return self.command("kube-scheduler", f"--config={self.path('scheduler.json')}", "--secure-port=0")

    def kwok(self):
        """Manages only simulated nodes, because a real node has a kubelet. KWOK has no rate limit to raise."""
        return self.command(
            "kwok", f"--kubeconfig={self.kubeconfig('kwok')}", f"--config={self.path('stages.yaml')}",
            "--manage-all-nodes=false", "--manage-nodes-with-label-selector=type=kwok",
            "--node-lease-duration-seconds=40")

    def limits(self):
        return [f"--kube-api-qps={self.setting['limit']}", f"--kube-api-burst={self.setting['limit']}"]

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)

    def kwok_node(self, number):
        name, has = f"kwok-{number}", self.setting["capacity"]
        return {"apiVersion": "v1", "kind": "Node",
                "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name,
                                                      "kubernetes.io/os": "linux"}},
                "status": {"allocatable": has, "capacity": has}}
