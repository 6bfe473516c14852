# SPDX-License-Identifier: Apache-2.0
"""Watches jobs, pods and the lease in the API server, independently of the operator, and checks invariants: each pod name
is created once; counts and epochs of a job never fall. With namespace=None those of all namespaces, which are then called
"namespace/name"."""
import contextlib
import datetime
import http.client
import json
import socket
import threading
import time
from urllib.parse import urlsplit

RISING = ("restarts", "gangRestarts", "epoch")    # not failures and rollbacks: suspending a job resets them
LEASES = "/apis/coordination.k8s.io/v1/namespaces/hvd-system/leases"


class Invariants:
    def __init__(self, cluster, namespace="default"):
        self.api, self.namespace = cluster.api, namespace
        self.made = {}        # {pod name: [uids]}
        self.wrong = []       # violated invariants, as text
        self.counts = {}      # {job name: {field: value}}
        self.phases = {}      # {job name: [phases, in order]}
        self.renewals = []    # (when, leaseTransitions, renewTime in seconds)
        self.threads, self.connections = [], []

    def __enter__(self):
        within = f"/namespaces/{self.namespace}" if self.namespace else ""
        self.follow(f"/api/v1{within}/pods", self.see_pod)
        self.follow(f"/apis/hvd.dev/v1alpha1{within}/hvdjobs", self.see_job)
        self.follow(LEASES, self.see_lease)
        return self

    def __exit__(self, *_):
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)    # close() alone does not wake the reading thread
            connection.sock.close()
        for thread in self.threads:
            thread.join(10)

    def follow(self, path, see):
        """Watches from now on; existing objects belong to other tests."""
        version = self.api.get(path + "?limit=1")["metadata"]["resourceVersion"]
        server = urlsplit(self.api.server.geturl())
        connection = http.client.HTTPSConnection(server.hostname, server.port, timeout=3600, context=self.api.context)
        connection.request("GET", f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=3600",
                           headers={"Authorization": f"Bearer {self.api.token}"})
        answer = connection.getresponse()
        self.connections.append(connection)
        thread = threading.Thread(target=self.read, args=(answer, see), daemon=True)
        self.threads.append(thread)
        thread.start()

    def read(self, answer, see):
        try:
            for line in answer:
                event = json.loads(line)
                see(event["type"], event["object"])
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass    # the connection was closed by __exit__

    def key(self, meta):
        return meta["name"] if self.namespace else f"{meta['namespace']}/{meta['name']}"

    def used_up(self, _name):
        """May no further pod have the name of this earlier one?"""
        return True

    def violated(self, text):
        self.wrong.append(text)

    def see_pod(self, kind, pod):
        meta = pod["metadata"]
        uids = self.made.setdefault(self.key(meta), [])
        if kind == "ADDED":
            if uids and self.used_up(self.key(meta)):
                self.violated(f"pod {self.key(meta)} was made {len(uids) + 1} times")
            uids.append(meta["uid"])

    def see_job(self, kind, job):
        name, status = self.key(job["metadata"]), job.get("status", {})
        before = self.counts.setdefault(name, {})
        for field in RISING:
            if kind != "DELETED" and status.get(field, 0) < before.get(field, 0):
                self.violated(f"job {name}: {field} went from {before[field]} to {status.get(field, 0)}")
            before[field] = status.get(field, 0)
        phases = self.phases.setdefault(name, [None])
        if status.get("phase") != phases[-1]:
            phases.append(status.get("phase"))

    def see_lease(self, _, lease):
        if lease["spec"].get("holderIdentity"):
            sent = datetime.datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp()
            self.renewals.append((time.monotonic(), lease["spec"].get("leaseTransitions", 0), sent))

    def transitions(self):
        return self.renewals[-1][1] if self.renewals else None

    def longest_lease_gap(self):
        """The longest time between two renewals, or since the last, in seconds."""
        times = [at for at, _, _ in self.renewals] + [time.monotonic()]
        return max((after - before for before, after in zip(times, times[1:])), default=0)

    def longest_pause_of_renewals(self):
        """The longest time between two renewals of one term, in seconds, by the operator's clock when it sent them."""
        return max((after[2] - before[2] for before, after in zip(self.renewals, self.renewals[1:])
                    if before[1] == after[1]), default=0)

    def pods_of(self, job):
        return sorted(name for name in self.made if name.startswith(job + "-"))
