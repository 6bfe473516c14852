# SPDX-License-Identifier: Apache-2.0
"""horovod.runner.elastic.discovery: where the hosts of an elastic job are, for programs that bring their own discovery.
hvdrun itself runs the script of --host-discovery-script."""
import subprocess

_SCRIPT_S = 60


class HostDiscovery:
    """Derived classes say which hosts there are."""

    def find_available_hosts_and_slots(self):
        """A dict of host names and their numbers of slots."""
        raise NotImplementedError()


class HostDiscoveryScript(HostDiscovery):
    """Hosts that a program prints, a line "host" or "host:slots" each. slots: of a host without a number."""

    def __init__(self, discovery_script, slots):
        self._script, self._slots = discovery_script, slots

    def find_available_hosts_and_slots(self):
        """Runs the program. RuntimeError if it fails; subprocess.TimeoutExpired after a minute."""
        done = subprocess.run(
            self._script, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SCRIPT_S
        )
        if done.returncode:
            raise RuntimeError(f"{self._script}: exit code {done.returncode}: {done.stderr.strip()}")
        found = {}
        for line in done.stdout.split():
            host, colon, slots = line.rpartition(":")
            found[host if colon else line] = int(slots) if colon else self._slots
        return found


class FixedHosts(HostDiscovery):
    """Hosts that the program itself sets."""

    def __init__(self, host_slots):
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self):
        """The dict of the last set()."""
        return self._host_slots

    def set(self, host_slots):
        """Replaces the dict of host names and slots."""
        self._host_slots = host_slots
