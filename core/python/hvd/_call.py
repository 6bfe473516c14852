# SPDX-License-Identifier: Apache-2.0
"""What a rank of hvd.run() executes (python -m hvd._call): gets the function from the process that has called run(), calls
it, and sends back what it returns. runner.py has the other end."""
import os
import pickle
import sys
import traceback

from ._channel import connect
from .objects import dump
from .world import before_shutdown, is_initialized, rank

_last = []  # this process's rank when it last left a job


def _ask(where, what, number, value=None):
    """Sends one request to the first address at which somebody answers it; returns the answer."""
    addresses, key = where
    failure = None
    for address in addresses:
        try:
            with connect(address, key) as server:
                server.send(f"{what} {number}".encode())
                if value is not None:
                    server.send(value)
                return server.receive()
        except OSError as reason:
            failure = failure or f"{address[0]} port {address[1]}: {reason}"
    raise SystemExit(f"hvd.run: this rank cannot reach the process that has called run(): {failure}")


def _where():
    pairs = [entry.rpartition("/") for entry in os.environ.pop("HVD_RUN_AT").split()]
    return [(host, int(port)) for host, _, port in pairs], os.environ.pop("HVD_RUN_KEY").encode()


def _rank():
    return rank() if is_initialized() else _last[0] if _last else int(os.environ["HVD_RANK"])


def main():
    where = _where()
    before_shutdown.append(lambda: _last.__setitem__(slice(None), [rank()]))
    func, args, kwargs = pickle.loads(_ask(where, "call", _rank()))
    try:
        result = func(*args, **kwargs)
        what, value = "result", bytes(dump(result))
    except Exception as reason:
        traceback.print_exc()
        what = "failure"
        value = "".join(traceback.format_exception_only(type(reason), reason)).strip().encode()
    _ask(where, what, _rank(), value)
    sys.exit(what == "failure")


if __name__ == "__main__":
    main()
