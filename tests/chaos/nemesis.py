# SPDX-License-Identifier: Apache-2.0
"""The faults of a chaos run: the acts, their requirements, and the acts of each scenario.

An act gets the run, causes a fault and returns a description of it, or None when this is not the
time for it (a kill that would leave no worker with the state). The workers that it hits are recorded:
the checker must know which workers were killed and which ended by themselves."""
import os
import resource
import signal
import subprocess

PHASES = ("revoke", "report", "install", "connect", "settle", "rest", "barrier", "resubmit")


def victims(run, count):
    """So many working workers, at random. None if too few would remain."""
    able = [w for w in run.job.working() if not w.stopped()]
    sound = [w for w in able if not w.armed]
    if len(able) - count < run.args.min or len(sound) <= count:
        return None
    return run.random.sample(able, count)


def strike(run, chosen, number=signal.SIGKILL, what="kill"):
    hit = [w for w in chosen if w.signal(number)]
    if not hit:
        return None
    run.event(what, [w.uid for w in hit])
    return f"{what} " + ", ".join(f"rank {w.rank} of {w.size} (pid {w.pid}, step {w.step})" for w in hit)


def kill(run):
    chosen = victims(run, 1)
    return strike(run, chosen) if chosen else None


def kill_several(run):
    chosen = victims(run, 2)
    return strike(run, chosen) if chosen else None


def kill_first(run):
    """Kills the lowest rank, which sends states and decides for all."""
    if not victims(run, 1):
        return None
    return strike(run, [w for w in run.job.working() if not w.stopped()][:1])


def kill_soon_after(run):
    """Kills a second rank while the first one's loss is repaired."""
    first = victims(run, 2)
    if not first:
        return None
    run.later(run.random.uniform(0.0005, 0.02), lambda: run.tell(strike(run, first[1:])))
    return strike(run, first[:1])


def doom(run):
    """One worker ends itself in the middle of its next operations: the first one that finds the file."""
    path = os.path.join(run.job.records, "doom")
    if os.path.exists(path) or not victims(run, 1):
        return None
    with open(path, "w", encoding="ascii"):
        pass
    return "one worker ends itself in the middle of its operations"


def doom_two(run):
    """Kills a second worker while the first one's loss is repaired, or in the same operations."""
    if not victims(run, 2) or not doom(run):
        return None
    run.later(run.random.uniform(0, 0.03), lambda: run.tell(doom(run)))
    return "two workers end themselves in the middle of their operations"


def kill_joiner(run):
    """Kills a worker that has started and does not work yet."""
    young = [w for w in run.job.workers.values() if not w.works and not w.ended and w.alive()]
    return strike(run, [run.random.choice(young)]) if young else None


def kill_arrival(run):
    """Kills a joiner that has its place and is not admitted: it starts up, or waits for admission."""
    outside = [w for w in run.job.workers.values() if w.outside and not w.ended and w.alive()]
    return strike(run, [run.random.choice(outside)]) if outside and run.job.working() else None


def scale(run, ranks):
    if run.job.lost:
        return None
    status, answer = run.job.control.scale(ranks)
    run.event("scale", [])
    run.target = ranks if status == 200 else run.target
    return f"scale to {ranks}" if status == 200 else f"scale to {ranks}: {status} {answer}"


def grow(run):
    """Grows the job by one, at once: a lost worker is replaced after a pause that doubles each time, and a request for
    no more than the living workers cancels that replacement. At the maximum the job shrinks instead."""
    alive = max(run.args.min, sum(1 for w in run.job.workers.values() if w.alive() and not w.ended))
    if alive >= run.args.max:
        return scale(run, run.random.randint(run.args.min, run.args.max - 1))
    if run.target > alive:
        run.tell(scale(run, alive))
    return scale(run, alive + 1)


def pause(run):
    """Stops a process for a while. The coordinator may treat its rank as lost meanwhile."""
    chosen = victims(run, 1)
    if not chosen:
        return None
    seconds = run.random.choice((0.02, 0.1, 0.5, 1.5))
    run.later(seconds, lambda: chosen[0].signal(signal.SIGCONT))
    did = strike(run, chosen, signal.SIGSTOP, "stop")
    return did and f"{did} for {seconds} s"


def starve(run):
    """Makes a process unable to open descriptors for a while, so that it cannot connect again."""
    chosen = victims(run, 1)
    if not chosen:
        return None
    pid, seconds = chosen[0].pid, run.random.choice((0.2, 1, 3))
    try:
        hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 1, hard))
    except OSError:
        return None
    run.event("starve", [chosen[0].uid])
    run.later(seconds, lambda: chosen[0].alive() and resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard)))
    return f"rank {chosen[0].rank} (pid {pid}) can open nothing for {seconds} s"


def arming(phases):
    """Returns an act: the next worker to start will end itself in one of these phases of a repair."""
    def arm(run):
        phase = run.random.choice(phases)
        folder = os.path.join(run.job.records, "inject")
        os.makedirs(folder, exist_ok=True)
        run.count += 1
        with open(os.path.join(folder, f"{phase}.{run.count}"), "w", encoding="ascii"):
            pass
        return f"the next worker to start ends itself in {phase}"
    return arm


def throttle(run):
    """Half a processor for the whole job, for a while."""
    seconds = run.random.uniform(0.5, 3)
    if not run.place.throttle(0.5):
        return None
    run.later(seconds, lambda: run.place.throttle(None))
    return f"half a processor for {seconds:.1f} s"


def take_over(run):
    """Starts another hvdrun, and sometimes kills it too while it asks the agents for their state."""
    run.job.attach()
    if run.random.random() < 0.3:
        run.later(run.random.uniform(0, 0.3), lambda: run.tell(lose_coordinator(run)))
    return "another hvdrun takes over"


def lose_coordinator(run):
    """Kills hvdrun, and starts another one before the agents end their ranks."""
    if not run.job.lose():
        return None
    run.event("coordinator", [])
    seconds = run.random.choice((0, 0.05, 0.3, 1, 3, 6))
    run.later(seconds, lambda: run.tell(take_over(run)))
    return f"hvdrun is killed, for {seconds} s there is none"


def lose_coordinator_soon_after(act):
    """Returns an act that causes the fault of act and kills hvdrun soon after, while it or the ranks are still busy with that
    fault."""
    def both(run):
        did = act(run)
        if did:
            run.later(run.random.choice((0, 0.001, 0.005, 0.02, 0.1)), lambda: run.tell(lose_coordinator(run)))
        return did
    return both


def far_workers(run):
    return [w.uid for w in run.job.workers.values() if w.alive() and run.place.far(w.pid)]


def lose(run):
    """With every fifth packet lost TCP may be silent for a second, so that the other host is treated as lost."""
    percent = run.random.choice((1, 5, 20))
    seconds = run.random.uniform(0.5, 3)
    if percent == 20:
        run.event("loss", far_workers(run))
    run.place.drop(percent)
    run.later(seconds, lambda: run.place.drop(0))
    return f"{percent} % of what goes between the hosts is lost for {seconds:.1f} s"


def partition(run):
    """The hosts do not reach each other, so briefly that they may notice only a pause."""
    seconds = run.random.choice((0.05, 0.2, 0.2))
    run.event("partition", [])
    run.place.drop(100)
    run.later(seconds, lambda: run.place.drop(0))
    return f"no way between the hosts for {seconds} s"


def cut(run):
    """The hosts do not reach each other until the other host is treated as lost. Only the ranks here go on."""
    if len([w for w in run.job.working() if not run.place.far(w.pid)]) < run.args.min:
        return None
    far = far_workers(run)
    run.event("partition", far)
    run.place.drop(100)
    run.later(20, lambda: run.place.drop(0))
    return f"no way between the hosts for 20 s; {len(far)} workers are there"


def nothing(_run):
    return None


WITHOUT_COORDINATOR = [(0.1, lose_coordinator), (0.15, lose_coordinator_soon_after(kill)), (0.05, kill_soon_after),
                       (0.15, lose_coordinator_soon_after(grow)), (0.05, kill_joiner), (0.15, kill), (0.35, grow)]

# name -> (acts with their weights, what they need of the place, seconds between acts)
SCENARIOS = {
    "calm": ([(1, nothing)], None, (1, 2)),
    "kill": ([(0.4, kill), (0.6, grow)], None, (0.5, 2)),
    "middle": ([(0.3, doom), (0.1, doom_two), (0.6, grow)], None, (0.5, 2)),
    "rank0": ([(0.4, kill_first), (0.6, grow)], None, (0.5, 2)),
    "several": ([(0.2, kill_several), (0.2, kill_soon_after), (0.6, grow)], None, (0.5, 2)),
    "joiners": ([(0.3, kill_joiner), (0.2, kill), (0.5, grow)], None, (0.1, 0.6)),
    "arrivals": ([(0.4, kill_arrival), (0.1, kill), (0.5, grow)], None, (0.05, 0.3)),
    "phases": ([(0.35, arming(PHASES)), (0.3, kill), (0.35, grow)], None, (0.5, 1.5)),
    "pause": ([(0.4, pause), (0.1, kill), (0.5, grow)], None, (0.5, 2)),
    "starve": ([(0.2, starve), (0.3, kill), (0.5, grow)], None, (0.3, 1)),
    "mixed": ([(0.1, kill), (0.1, doom), (0.05, kill_several), (0.05, kill_soon_after), (0.05, kill_first), (0.05, kill_joiner),
               (0.1, pause), (0.5, grow)], None, (0.5, 2)),
    "coordinator": (WITHOUT_COORDINATOR, "alone", (0.3, 1.5)),
    "coordinators": (WITHOUT_COORDINATOR, "hosts", (0.3, 1.5)),
    "shm": ([(0.4, kill), (0.6, grow)], "shm", (0.5, 2)),
    "throttle": ([(0.3, throttle), (0.2, kill), (0.5, grow)], "cgroup", (0.5, 2)),
    "quota": ([(1, nothing)], "quota", (1, 2)),
    "loss": ([(0.3, lose), (0.2, kill), (0.5, grow)], "hosts", (0.5, 2)),
    "partition": ([(0.3, partition), (0.2, kill), (0.5, grow)], "hosts", (0.5, 2)),
    "cut": ([(0.2, cut), (0.3, kill), (0.5, grow)], "hosts", (1, 5)),
}


class Place:
    """Where the job runs. before: words in front of hvdrun; more: its own options; env: variables."""

    name = None

    def __init__(self, folder, args):
        self.folder, self.args = folder, args
        self.before, self.more, self.env = [], [], {}

    def open(self):
        """None, or the reason why this place is not available here."""

    def close(self):
        pass


class Alone(Place):
    """Agents wait for another hvdrun for a limited time."""

    name = "alone"

    def open(self):
        self.env = {"HVD_COORDINATOR_LOST_SECONDS": "20"}


class FullShm(Place):
    """/dev/shm is 64 KiB and full, in a mount namespace of the job's own."""

    name = "shm"

    def open(self):
        script = ("mount -t tmpfs -o size=64k none /dev/shm && { cat /dev/zero >/dev/shm/full 2>/dev/null; "
                  "exec \"$@\"; }")
        self.before = ["unshare", "--mount", "sh", "-c", script, "sh"]
        done = subprocess.run([*self.before, "sh", "-c", "! echo 12345 >/dev/shm/more"], capture_output=True,
                              check=False)
        return None if done.returncode == 0 else "no mount namespaces here"


class Throttled(Place):
    """A control group whose quota changes."""

    name = "cgroup"

    def open(self):
        for base, file in (("/sys/fs/cgroup", "cgroup.controllers"), ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us")):
            if os.path.exists(os.path.join(base, file)):
                break
        else:
            return "no cgroup with a cpu controller"
        self.group = os.path.join(base, f"hvd-chaos-{os.getpid()}")
        try:
            if file == "cgroup.controllers":
                with open(os.path.join(base, "cgroup.subtree_control"), "w", encoding="ascii") as f:
                    f.write("+cpu")
            os.mkdir(self.group)
        except OSError as error:
            return f"no cgroup: {error}"
        self.quota = next((n for n in ("cpu.max", "cpu.cfs_quota_us") if os.path.exists(f"{self.group}/{n}")), None)
        if not self.quota:
            return "no cpu controller"
        self.before = ["sh", "-c", f"echo $$ >{self.group}/cgroup.procs && exec \"$@\"", "sh"]
        return None

    def throttle(self, processors):
        none = "max 100000" if self.quota == "cpu.max" else "-1"
        amount = none if processors is None else str(int(processors * 100000))
        with open(f"{self.group}/{self.quota}", "w", encoding="ascii") as f:
            f.write(amount if self.quota != "cpu.max" or processors is None else f"{amount} 100000")
        return True

    def close(self):
        try:
            os.rmdir(self.group)
        except (OSError, AttributeError):
            pass


class Quota(Throttled):
    """Half a processor for the whole job, all the time."""

    name = "quota"

    def open(self):
        reason = super().open()
        if not reason:
            self.throttle(0.5)
        return reason


class Hosts(Place):
    """Two hosts, which are network namespaces. Packets between them can be dropped."""

    name = "hosts"

    def run(self, *argv):
        subprocess.run(argv, check=True, capture_output=True)

    def open(self):
        self.names = [f"hvdc{os.getpid()}{c}" for c in "ab"]
        self.made, self.percent = [], 0
        a, b = self.names
        try:
            for name in self.names:
                self.run("ip", "netns", "add", name)
                self.made.append(name)
            self.run("ip", "link", "add", "veth0", "netns", a, "type", "veth", "peer", "name", "veth0", "netns", b)
            for i, name in enumerate(self.names):
                self.run("ip", "-n", name, "addr", "add", f"10.214.7.{i + 1}/24", "dev", "veth0")
                self.run("ip", "-n", name, "link", "set", "veth0", "up")
                self.run("ip", "-n", name, "link", "set", "lo", "up")
            for name in self.names:
                self.tables(name, "-A", "INPUT", 1)
                self.tables(name, "-D", "INPUT", 1)
        except (OSError, subprocess.CalledProcessError) as error:
            text = (getattr(error, "stderr", b"") or b"").decode().strip()
            return f"no network namespaces or iptables: {text or error}"
        self.namespace = os.stat(f"/run/netns/{b}").st_ino
        self.before = ["ip", "netns", "exec", a]
        half = (self.args.max + 1) // 2
        self.more = ["-H", f"localhost:{half},{b}:{half}"]
        self.env = {"HVD_RSH_AGENT": "ip netns exec", "HVD_COORDINATOR_LOST_SECONDS": "20"}
        return None

    def tables(self, name, verb, chain, percent):
        how = [] if percent == 100 else ["-m", "statistic", "--mode", "random", "--probability", str(percent / 100)]
        self.run("ip", "netns", "exec", name, "iptables", "-w", verb, chain, "-i", "veth0", *how, "-j", "DROP")

    def drop(self, percent):
        """Drops packets that come to either host."""
        for name in self.names:
            if self.percent:
                self.tables(name, "-D", "INPUT", self.percent)
            if percent:
                self.tables(name, "-A", "INPUT", percent)
        self.percent = percent

    def far(self, pid):
        try:
            return os.stat(f"/proc/{pid}/ns/net").st_ino == self.namespace
        except OSError:
            return False

    def close(self):
        for name in self.made:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


PLACES = {place.name: place for place in (Place, Alone, FullShm, Throttled, Quota, Hosts)}
