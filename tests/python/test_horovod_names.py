#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# takes: 3 s
"""hvd's package horovod has the names marked + in horovod_names.txt, and not those marked -. Tests of its helpers."""

import importlib
import os
import queue
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "core", "python"), HERE]

from harness import raises  # noqa: E402

from hvd import horovod_alias  # noqa: E402

horovod_alias.install()
TABLE = os.path.join(HERE, "horovod_names.txt")


def rows():
    """(whether hvd has them, module, names, reason) of each line of the table."""
    with open(TABLE, encoding="utf-8") as table:
        for line in table:
            found = re.fullmatch(r"([+-]) ([\w.]+): ([\w ]+?)(?: \| (.+))?\n", line)
            if found:
                yield found[1] == "+", found[2], found[3].split(), found[4]
            else:
                assert not line.strip() or line.startswith("#"), line


def test_table():
    seen, count = set(), 0
    for there, module, names, reason in rows():
        assert bool(reason) != there, (module, reason)
        try:
            found = importlib.import_module(module)
        except ModuleNotFoundError:
            assert not there, module
            found = None
        for name in names:
            count += 1
            assert (module, name) not in seen, (module, name)
            seen.add((module, name))
            assert hasattr(found, name) == there, (module, name)
    assert count > 400, count


def test_no_torch():
    """Programs for other frameworks, and launchers, import horovod without torch."""
    code = (
        "import sys; sys.modules['torch'] = None; import horovod, horovod.common.util, horovod.runner.launch; "
        "assert not horovod.common.util.extension_available('tensorflow')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


def test_real_horovod():
    """install() raises ImportError when another horovod is imported already."""
    code = (
        f"import sys, types; sys.path.insert(0, {os.path.join(ROOT, 'core', 'python')!r}); "
        "sys.modules['horovod'] = types.ModuleType('horovod'); import hvd.horovod_alias as a; a.install()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "horovod is already imported" in done.stderr, done.stderr


def test_util():
    from horovod.common import util

    assert util.split_list(list(range(7)), 3) == [[0, 1, 2], [3, 4], [5, 6]] and util.split_list([], 2) == [[], []]
    assert [n for n in range(-1, 9) if util.num_rank_is_power_2(n)] == [1, 2, 4, 8]
    assert util.is_iterable([]) and not util.is_iterable(3)
    os.environ["HVD_TEST_A"] = "before"
    with util.env(HVD_TEST_A="1", HVD_TEST_B="2", HVD_TEST_C=None):
        assert (os.environ["HVD_TEST_A"], os.environ["HVD_TEST_B"]) == ("1", "2")
    assert os.environ.pop("HVD_TEST_A") == "before" and "HVD_TEST_B" not in os.environ
    assert util.gloo_built() and not util.ddl_built() and not util.extension_available("mxnet")
    util.check_extension("horovod.torch", "HOROVOD_WITH_PYTORCH", __file__, "mpi_lib_v2")
    with raises(ImportError, "mxnet"):
        util.check_extension("horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")


def test_runner():
    from horovod.runner.common.util import codec, env
    from horovod.runner.common.util.timeout import Timeout, TimeoutException
    from horovod.runner.elastic.discovery import FixedHosts, HostDiscovery, HostDiscoveryScript
    from horovod.runner.util.threads import in_thread

    assert codec.loads_base64(codec.dumps_base64({"a": [1]})) == {"a": [1]}
    assert isinstance(codec.dumps_base64(1, to_ascii=False), bytes)
    assert env.is_exportable("PATH") and not env.is_exportable("BASH_FUNC_x%%")
    with raises(TimeoutException, "waiting for hosts. Timeout after 0 seconds."):
        Timeout(0, "waiting for {activity}.").check_time_out_for("hosts")
    assert 5 < Timeout(10, "").remaining() <= 10
    script = HostDiscoveryScript("printf 'h1:2\\nh2\\n'", 4)
    assert isinstance(script, HostDiscovery) and script.find_available_hosts_and_slots() == {"h1": 2, "h2": 4}
    with raises(RuntimeError, "exit code 3: no hosts"):
        HostDiscoveryScript("echo no hosts >&2; exit 3", 1).find_available_hosts_and_slots()
    fixed = FixedHosts({"a": 1})
    fixed.set({"b": 2})
    assert fixed.find_available_hosts_and_slots() == {"b": 2}
    heard = queue.Queue()
    thread = in_thread(heard.put, (1,), name="t")
    assert heard.get(timeout=20) == 1 and thread.daemon
    in_thread(lambda: 1 / 0, silent=True).join(20)
    with raises(ValueError, "tuple"):
        in_thread(print, args=1)


if __name__ == "__main__":
    try:
        import torch  # noqa: F401
    except ImportError:
        print("SKIP: python/test_horovod_names: python3-torch: cannot be imported")
        sys.exit(77)
    for name, test in list(globals().items()):
        if name.startswith("test_") and callable(test):
            test()
            print("ok", name, flush=True)
