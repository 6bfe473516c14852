#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The network between the host and a real node: a pair of veth interfaces, one in the node's network namespace, and
routes from the host to the node's pods and services. The kernel removes the host's end, its address and the routes with
the namespace, so nothing is left when all processes of a cluster are killed.

    network.py NUMBER PID       run in a new network namespace: creates the pair, moves the other end into the namespace of
                                process PID, and keeps the namespace. A node can stop and start in it without any effect
                                on the API server, which listens on the host's end."""
import os
import signal
import subprocess
import sys

NODE = "real-0"


def ip(*arguments):
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


class Network:
    """number: 0 to 255, unique among clusters with real nodes on this machine."""

    def __init__(self, number):
        self.number = number
        self.interface = f"hvdk{number}"
        self.host, self.node = f"10.213.{number}.1", f"10.213.{number}.2"
        self.pods, self.services = f"10.214.{number}.0/24", f"10.215.{number}.0/24"
        self.gateway = f"10.214.{number}.1"   # of the pods, on the node's bridge

    def make_inside(self, keeper):
        ip("link", "set", "lo", "up")
        ip("link", "add", "eth0", "type", "veth", "peer", "name", self.interface, "netns", str(keeper))
        ip("address", "add", self.node + "/24", "dev", "eth0")
        ip("link", "set", "eth0", "up")
        ip("route", "add", "default", "via", self.host)
        with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as f:
            f.write("1")

    def is_there(self):
        return os.path.isdir(f"/sys/class/net/{self.interface}")

    def make_outside(self):
        ip("address", "add", self.host + "/24", "dev", self.interface)
        ip("link", "set", self.interface, "up")
        for subnet in (self.pods, self.services):
            ip("route", "add", subnet, "via", self.node, "dev", self.interface)

    def remove(self):
        """Removes the interface at once; the kernel would take its time to destroy the namespace."""
        subprocess.run(["ip", "link", "delete", self.interface], capture_output=True, timeout=30)


def free_number(start):
    """The first number from start whose interface does not exist."""
    for i in range(256):
        net = Network((start + i) % 256)
        if not net.is_there():
            return net.number
    raise RuntimeError("256 clusters with real nodes are running")


def main():
    Network(int(sys.argv[1])).make_inside(int(sys.argv[2]))
    signal.pause()


if __name__ == "__main__":
    main()
