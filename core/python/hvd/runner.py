# SPDX-License-Identifier: Apache-2.0
"""run(): calls a function on many ranks from a Python program or a notebook, without a script of its own.

    def train(epochs):
        import hvd.torch as hvd
        hvd.init()
        ...
        return accuracy

    accuracies = hvd.run(train, args=(5,), np=4)

hvdrun starts the ranks. Each asks this process for the function and its arguments, and sends back what it returns
(_call.py), pickled. Both ends prove with each message that they know a key, which the ranks have in their environment
(_channel.py).
"""
import codecs
import collections
import contextlib
import glob
import os
import pickle
import re
import secrets
import shutil
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import threading
import warnings

from . import objects
from ._channel import SMALL, Channel
from ._lib import HvdError

_LINES = 15  # of hvdrun's own messages that an error shows
_STOP_S = 20  # how long hvdrun has to end its ranks

_USAGE = 2  # hvdrun's exit code for wrong usage

_LOCAL = "127.0.0.1"


def _root():
    """The folder in which the package hvd lies."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _hvdrun():
    """The path of hvdrun: of a checkout, of the wheel, or the first one in PATH. Raises FileNotFoundError without one."""
    checkout = os.path.dirname(os.path.dirname(_root()))
    beside = os.path.join(os.path.dirname(sys.executable), "hvdrun")
    found = sorted(glob.glob(os.path.join(checkout, "build*", "hvdrun"))) if os.path.exists(
        os.path.join(checkout, "core", "include", "hvd.h")
    ) else []
    for path in [*found, beside, shutil.which("hvdrun"), "/usr/local/bin/hvdrun"]:
        if path and os.access(path, os.X_OK):
            return path
    raise FileNotFoundError("hvdrun is neither beside python nor in PATH: install hvd, or set PATH")


def _flag(name, value):
    return [] if value is None else [name, str(value)]


def _options(given):
    """hvdrun's options for the arguments of run()."""
    interfaces = given["network_interfaces"] or []
    interfaces = [interfaces] if isinstance(interfaces, str) else interfaces
    options = [
        *_flag("-np", given["num_proc"]),
        *_flag("--min-np", given["min_num_proc"]),
        *_flag("--max-np", given["max_num_proc"]),
        *_flag("--slots-per-host", given["slots"]),
        *_flag("--reset-limit", given["reset_limit"]),
        *_flag("-H", given["hosts"]),
        *_flag("--hostfile", given["hostfile"]),
        *_flag("--host-discovery-script", given["host_discovery_script"]),
        *_flag("--start-timeout", given["start_timeout"]),
        *_flag("--ssh-port", given["ssh_port"]),
        *_flag("--ssh-identity-file", given["ssh_identity_file"]),
        *_flag("--output-filename", given["output_filename"]),
        *_flag("--network-interfaces", ",".join(interfaces) if interfaces else None),
    ]
    if given["cooldown_range"]:
        options += ["--blacklist-cooldown-range", *[str(seconds) for seconds in given["cooldown_range"]]]
    if given["verbose"]:
        options += ["-v"] * min(int(given["verbose"]), 2)
    return options


def _names(given):
    """The hosts of the arguments hosts and hostfile, without their slots."""
    entries = (given["hosts"] or "").split(",")
    if given["hostfile"]:
        with open(given["hostfile"]) as file:
            entries += [(line.partition("#")[0].split() or [""])[0] for line in file]
    names = [entry.strip() for entry in entries]
    return [re.fullmatch(r"\[(.*)\](:\d*)?|(.*?)(:\d*)?", name).expand(r"\1\3") for name in names if name]


def _own_address(name):
    """This host's address towards another one. If its name tells none, because only ssh knows it, this host's name."""
    with contextlib.suppress(OSError, UnicodeError):
        kind, _, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: the kernel chooses the interface
            own = probe.getsockname()[0]
            return _LOCAL if own in ("::1", probe.getpeername()[0]) else own
    return socket.gethostname()


def _addresses(given):
    """Where ranks can reach this process: its addresses towards the given hosts; 127.0.0.1 if there is no other host. On another
    host that address is somebody else."""
    names = _names(given)
    if given["host_discovery_script"]:
        names.append("192.0.2.1")  # nobody's address: it stands for hosts that are not known yet
    found = [address for address in dict.fromkeys(map(_own_address, names)) if not address.startswith("127.")]
    return list(dict.fromkeys([*found, socket.gethostname()])) if found else [_LOCAL]


class _Server:
    """Gives the function to ranks that ask, and collects what they return. Threads: one that accepts, one for each
    connection; `results` (pickled, by rank) and `failures` (rank and text, in the order in which they came) may be read when
    the ranks have ended."""

    def __init__(self, call, addresses):
        self._call, self.key = call, secrets.token_hex(32)
        self.results, self.failures = {}, []
        self.asked = False  # a rank has asked for the function
        if addresses == [_LOCAL]:
            self._socket = socket.create_server((_LOCAL, 0), backlog=1024)
        elif socket.has_dualstack_ipv6():
            self._socket = socket.create_server(("", 0), family=socket.AF_INET6, backlog=1024, dualstack_ipv6=True)
        else:
            self._socket = socket.create_server(("", 0), backlog=1024)
        port = self._socket.getsockname()[1]
        self.at = " ".join(f"{address}/{port}" for address in addresses)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self):
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer):
        try:
            with peer, Channel(peer, self.key.encode(), False) as rank:
                what, number = rank.receive(SMALL).decode().split()
                if what == "call":
                    self.asked = True
                    rank.send(self._call)
                    return
                data = rank.receive()
                if what == "result":
                    self.results[int(number)] = data
                else:
                    self.failures.append((int(number), data.decode()))
                rank.send(b"taken")
        except OSError:
            pass  # not one of our ranks, or one that was killed: hvdrun says so

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._socket.close()
        self._thread.join()


def _environment(server):
    env = dict(os.environ, HVD_RUN_AT=server.at, HVD_RUN_KEY=server.key)
    # The ranks import what this program could import, but not what belongs to its Python itself.
    places = [*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()]
    own = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib"))
    paths = [os.path.abspath(path) for path in sys.path]
    paths = [p for p in paths if p not in places and not p.startswith(own) and not p.endswith(".zip")]
    env["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, _root()]))
    return env


class _Copy(threading.Thread):
    """Copies what hvdrun writes to sys.stdout or sys.stderr as it comes, until its end, also if these do not take it any
    more. kept: takes the last lines that hvdrun itself has written."""

    def __init__(self, stream, to, kept):
        super().__init__(daemon=True)
        self._stream, self._to, self._kept, self._line = stream, to, kept, ""

    def run(self):
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while data := self._stream.read1(65536):
            text = decoder.decode(data)
            *lines, rest = (self._line + text).split("\n")
            self._kept.extend(line for line in lines if line.startswith("hvdrun:"))
            self._line = rest[-4096:]
            if self._to:
                self._write(text)

    def _write(self, text):
        try:
            try:
                self._to.write(text)
            except UnicodeEncodeError:
                known = getattr(self._to, "encoding", None) or "ascii"
                self._to.write(text.encode(known, "replace").decode(known))
            self._to.flush()
        except (OSError, ValueError):
            self._to = None  # closed: the rest is read, so that the ranks do not wait, and dropped


def _wait(command, env):
    """Runs hvdrun, which ends with this process. Returns the exit code and hvdrun's last messages."""
    kept = collections.deque(maxlen=_LINES)
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    copies = [_Copy(process.stdout, sys.stdout, kept), _Copy(process.stderr, sys.stderr, kept)]
    try:
        for thread in copies:
            thread.start()
        while process.poll() is None:  # in steps: a signal that another thread receives does not end a wait
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
    except BaseException:  # such as KeyboardInterrupt
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    finally:
        for thread in copies:
            thread.join(_STOP_S)
    return process.returncode, list(kept)


def _failure(server, said):
    """The text of the exception for a job that has failed: that of the rank that began it, if one has told, and hvdrun's."""
    first = [f for f in server.failures if "HorovodInternalError" not in f[1] and "RankLostError" not in f[1]]
    for number, text in (first or server.failures)[:1]:
        return "\n".join([f"run: rank {number} has failed: {text}", *said])
    return "\n".join(["run: the job has failed", *said])


def _older_names(given, older):
    for old, new in (("np", "num_proc"), ("min_np", "min_num_proc"), ("max_np", "max_num_proc")):
        if older[old] is not None:
            given[new] = older[old]
    if older["network_interface"]:
        warnings.warn("network_interface is the older name of network_interfaces", DeprecationWarning, stacklevel=3)
        given["network_interfaces"] = older["network_interface"].split(",")


# fmt: off
def run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None, reset_limit=None,
        cooldown_range=None, hosts=None, hostfile=None, host_discovery_script=None, start_timeout=None, ssh_port=None,
        ssh_identity_file=None, disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None,
        mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None, min_np=None,
        max_np=None):
    # fmt: on
    """Calls func(*args, **kwargs) on num_proc ranks; returns the list of what it returns on each, in the order of ranks.
    What the ranks print appears here as it comes.

    func calls hvd.init() itself. It and its arguments are pickled, by cloudpickle where that is installed: functions of a
    notebook or of the main program need it.

    num_proc (np): the number of ranks. min_num_proc, max_num_proc (min_np, max_np), slots, reset_limit, cooldown_range,
    host_discovery_script: an elastic job, as hvdrun's options of these names; returns the results of the ranks that were
    there at the end, at most min_num_proc of them. hosts: "h1:4,h2:4"; hostfile: the path of a list; without both, this
    machine. start_timeout: seconds. output_filename: a folder for the ranks' output. network_interfaces: a list of names.
    executable: the ranks' Python, this one by default. use_gloo, use_mpi, mpi_args and disable_cache change nothing: they
    are there for programs written for Horovod.

    Raises ValueError for wrong arguments, HvdError if a rank has failed; its text has the exception of the rank
    that failed first, if that rank could tell, and hvdrun's last lines."""
    given = {name: value for name, value in locals().items() if name not in ("func", "args", "kwargs")}
    _older_names(given, given)
    if not callable(func):
        raise TypeError(f"run() needs a function, got {func!r}")
    if isinstance(args, (str, bytes)) or not hasattr(args, "__iter__"):
        raise TypeError(f"args should be a tuple of func's arguments, got {args!r}")
    if hosts is not None and hostfile is not None:
        raise ValueError("hosts and hostfile: give one of them")
    if use_gloo and use_mpi:
        raise ValueError("use_gloo and use_mpi: give one of them; hvd needs neither")
    try:
        call = bytes(objects.dump((func, tuple(args), dict(kwargs or {}))))
    except Exception as reason:
        raise ValueError(f"{func!r} or its arguments cannot be pickled ({reason}); is cloudpickle installed?") from reason
    num_proc = given["num_proc"]
    elastic = any(given[name] is not None for name in ("min_num_proc", "max_num_proc", "host_discovery_script"))
    server = _Server(call, _addresses(given))
    try:
        command = [_hvdrun(), "--end-with", str(os.getpid()), *_options(given), "-x", "HVD_RUN_AT", "-x", "HVD_RUN_KEY", "-x", "PYTHONPATH",
                   executable or sys.executable, "-m", "hvd._call"]  # fmt: skip
        code, said = _wait(command, _environment(server))
    finally:
        server.close()
    if code:
        if code == _USAGE and not server.asked:
            raise ValueError("\n".join(["run: hvdrun refuses an argument", *said]))
        raise HvdError(_failure(server, said))
    lacking = [number for number in range(num_proc) if number not in server.results]
    if lacking and not elastic:
        raise HvdError(f"run: rank {lacking[0]} has ended with exit code 0 before func has returned")
    results = [pickle.loads(value) for _, value in sorted(server.results.items())]
    return results[: given["min_num_proc"]] if given["min_num_proc"] else results
