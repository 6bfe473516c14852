# SPDX-License-Identifier: Apache-2.0
"""What a rank of hvd.run() executes (python -m hvd._call): gets the function from the process that has called run(), calls
it, and sends back what it returns. runner.py has the other end."""
import os
import pickle
import socket
import sys
import traceback
from multiprocessing import connection

from .objects import dump
from .runner import PATIENCE_S, opened
from .world import is_initialized, rank


def _connect(at, key):
    """A connection to the first of the addresses ("host/port", separated by spaces) that answers."""
    failure = None
    for address in at.split():
        host, _, port = address.rpartition("/")
        try:
            peer = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        except OSError as reason:
            failure = failure or OSError(f"{host} port {port}: {reason}")
            continue
        asked = opened(peer)
        connection.answer_challenge(asked, key)
        connection.deliver_challenge(asked, key)
        return asked
    raise SystemExit(f"hvd.run: this rank cannot reach the process that has called run(): {failure}")


def _ask(where, what, number, value=None):
    with _connect(*where) as asked:
        asked.send((what, number, value))
        return asked.recv_bytes() if what == "call" else asked.recv()


def _rank():
    return rank() if is_initialized() else int(os.environ["HVD_RANK"])


def main():
    where = os.environ.pop("HVD_RUN_AT"), os.environ.pop("HVD_RUN_KEY").encode()
    func, args, kwargs = pickle.loads(_ask(where, "call", None))
    try:
        result = func(*args, **kwargs)
        what, value = "result", bytes(dump(result))
    except Exception as reason:
        traceback.print_exc()
        what, value = "failure", "".join(traceback.format_exception_only(type(reason), reason)).strip()
    _ask(where, what, _rank(), value)
    sys.exit(what == "failure")


if __name__ == "__main__":
    main()
