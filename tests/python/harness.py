# SPDX-License-Identifier: Apache-2.0
"""Helpers for the tests in rank_*.py."""
import contextlib


@contextlib.contextmanager
def raises(kind, *words):
    """The block must raise `kind`, with these words in its text."""
    try:
        yield
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")
