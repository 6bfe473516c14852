#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# takes: 1 s, waiting
"""The man page of each program has the options of its --help."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("BUILD", "build"))
# The pages of the others also have the options of their commands, and of other programs.
EXACT = ("hvd-operator", "hvd-plane")
PAGES = {"hvdrun": "agent", "hvd-agent": "agent", "hvd-doctor": "diagnostics", "hvd-operator": "operator",
         "hvd-plane": "operator"}


def helped(program):
    """Options at the beginning of lines of --help."""
    text = subprocess.run([os.path.join(BUILD, program), "--help"], capture_output=True, text=True, timeout=60,
                          check=True).stdout
    heads = re.findall(r"^ +((?:-\w+,? )*--[\w-]+(?:, --[\w-]+)*)", text, re.M)
    return {option for head in heads for option in re.findall(r"--[\w-]+", head)}


def written(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as f:
        return set(re.findall(r"--\w[\w-]*", re.sub(r"\\f.", "", f.read().replace("\\-", "-"))))


def test_options():
    for program, folder in PAGES.items():
        options, page = helped(program), written(f"{folder}/{program}.1")
        assert len(options) >= 2, (program, options)
        assert options <= page, f"{program}.1 lacks {sorted(options - page)}"
        if program in EXACT:
            assert page <= options, f"{program} --help lacks {sorted(page - options)}"


def main():
    test_options()
    return 0


if __name__ == "__main__":
    sys.exit(main())
