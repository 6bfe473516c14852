#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real node: containerd, kubelet and kube-proxy. Started by keeper.py in namespaces of its own:

    node.py SETTING    as the first process of a pid namespace

When it ends, the kernel ends every process of the node, also pods and their shims, and then unmounts everything. /run,
/var/lib and /var/log are folders of the cluster here. Kernel settings that a kubelet writes are global, so files replace
them. Only control groups are left for the supervisor to remove."""
import json
import os
import signal
import subprocess
import sys
import time

import image
import network

PRIVATE = {"lib": "/var/lib", "log": "/var/log"}
# Values that a kubelet expects in /proc/sys, and writes if they differ.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
           "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}
PATIENCE = 60


def call(*command):
    subprocess.run(command, check=True, timeout=PATIENCE, stdin=subprocess.DEVNULL)


class Node:
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            self.setting = json.load(f)
        self.folder = self.setting["folder"]
        self.net = network.Network(self.setting["network"])
        self.group = "/" + os.path.basename(self.folder)
        self.children = {}

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def mount(self):
        call("mount", "--make-rshared", "/")   # containers need shared mount propagation; only within this namespace
        call("mount", "-t", "tmpfs", "-o", "mode=755", "run", "/run")
        for name, place in PRIVATE.items():
            os.makedirs(self.path("node", name), exist_ok=True)
            call("mount", "--bind", self.path("node", name), place)
        os.makedirs("/run/sysctl")
        for name, value in SYSCTLS.items():
            stand_in = "/run/sysctl/" + name.replace("/", ".")
            with open(stand_in, "w", encoding="ascii") as f:
                f.write(value + "\n")
            if os.path.exists("/proc/sys/" + name):
                call("mount", "--bind", stand_in, "/proc/sys/" + name)
        call("hostname", network.NODE)

    def write(self, path, text):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)

    def start(self, name, *command, environment=None):
        with open(self.path("log", name + ".log"), "ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
        self.children[child.pid] = name
        with open(self.path("log", "node.log"), "a", encoding="utf-8") as log:
            log.write(f"{name} is process {child.pid} of the node\n")

    def containerd(self):
        self.write("/run/containerd.toml", f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image.PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/run/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
""")
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True,
                  "ipam": {"type": "host-local", "ranges": [[{"subnet": self.net.pods, "gateway": self.net.gateway}]],
                           "routes": [{"dst": "0.0.0.0/0"}]}}
        self.write("/run/cni/hvd.conflist", json.dumps(
            {"cniVersion": "0.4.0", "name": "hvd",
             "plugins": [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]}))
        self.start("containerd", "containerd", "--config", "/run/containerd.toml")

    def kubelet(self):
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "address": self.net.node,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},   # only the host and its own pods can reach it
            "cgroupDriver": "cgroupfs", "cgroupRoot": self.group, "failCgroupV1": False, "failSwapOn": False,
            "enforceNodeAllocatable": [], "makeIPTablesUtilChains": False, "resolvConf": "",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "oomScoreAdj": 0,
            "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                             "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100, "readOnlyPort": 0, "healthzPort": 0,
            "volumePluginDir": "/var/lib/kubelet/plugins-exec", "podLogsDir": "/var/log/pods",
            "kubeAPIQPS": self.setting["limit"], "kubeAPIBurst": self.setting["limit"],
            "registryPullQPS": 0, "maxPods": 200, "nodeStatusUpdateFrequency": "5s",
            "featureGates": self.setting["gates"],
        }
        self.write("/run/kubelet.json", json.dumps(config))
        self.start("kubelet", self.setting["programs"]["kubelet"], "--config=/run/kubelet.json",
                   "--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki",
                   f"--kubeconfig={self.path('node-' + network.NODE + '.kubeconfig')}",
                   f"--hostname-override={network.NODE}", f"--node-ip={self.net.node}",
                   *self.setting["more"].get("kubelet", []))

    def proxy(self):
        config = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": self.path("kube-proxy.kubeconfig")}, "clusterCIDR": self.net.pods,
            "hostnameOverride": network.NODE, "healthzBindAddress": self.net.node + ":10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpCloseWaitTimeout": "0s", "tcpEstablishedTimeout": "0s"},
        }
        self.write("/run/proxy.json", json.dumps(config))
        self.start("kube-proxy", self.setting["programs"]["kube-proxy"], "--config=/run/proxy.json")

    def wait_for(self, path):
        end = time.monotonic() + PATIENCE
        while not os.path.exists(path):
            if time.monotonic() > end:
                raise TimeoutError(f"no {path} after {PATIENCE} s")
            time.sleep(0.02)

    def run(self):
        self.mount()
        self.containerd()
        self.wait_for("/run/containerd/containerd.sock")
        call("ctr", "--address", "/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import",
            self.path("pause.tar"))
        self.wait_for(self.path("apiserver-is-ready"))
        self.kubelet()
        self.proxy()
        self.reap()

    def reap(self):
        """Reaps orphans: this is the namespace's first process. Reports a program of the node that exits early."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            pid, status = os.wait()
            if pid in self.children:
                print(f"node: {self.children.pop(pid)} ended: {os.waitstatus_to_exitcode(status)}", flush=True)


def main():
    Node(sys.argv[1]).run()


if __name__ == "__main__":
    main()
