# SPDX-License-Identifier: Apache-2.0
# takes: 3 s, waiting
"""The protocols of flags under weak memory: see README.md. Prints a line for each program.

test_litmus.py [NAME...]: only the programs whose names contain one of these.
"""

import pathlib
import re
import sys
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import litmus  # noqa: E402
import program  # noqa: E402

ROOT = HERE.parent.parent
faults = []


def wrong(name, text):
    faults.append(name)
    print(f'FAILED {name}: {text}')


def programs_of(path):
    for part in re.split(r'^(?=C )', path.read_text(encoding='utf-8'), flags=re.M)[1:]:
        yield program.Program(part, part.splitlines()[0][2:])


def check_code(p):
    """The source must still have the lines that a program models."""
    if not p.code:
        wrong(p.name, 'it names no line of the source')
    for file, text in p.code:
        path = ROOT / file
        if not path.exists() or text not in ' '.join(path.read_text(encoding='utf-8').split()):
            wrong(p.name, f'{file} does not say "{text}": look whether the program still stands for it')


def check_outcome(p):
    for model in p.models:
        found = litmus.fails(p, model)
        if (found is not None) != p.allowed:
            wrong(p.name, f'{model}: {found or "the allowed outcome is not found"}')


def check_weakened(p):
    """Each order must be needed, or marked as spare. Returns how many are needed."""
    needed = 0
    for line, order, weaker in p.weakened():
        found = any(litmus.fails(w, model) for w in weaker for model in p.models)
        needed += found
        if found == (line in p.spare):
            text = p.text.splitlines()[line - 1].strip()
            wrong(p.name, f'a weaker order than {order} in "{text}" '
                          + ('is caught: it is not spare' if found else 'is not caught'))
    if needed == 0:
        wrong(p.name, 'no weakened order is caught: it tests nothing')
    return needed


def main():
    for path in sorted(HERE.glob('*.litmus')):
        for p in programs_of(path):
            if sys.argv[1:] and not any(word in p.name for word in sys.argv[1:]):
                continue
            before, begin, needed = len(faults), time.monotonic(), None
            check_outcome(p)
            if path.stem != 'classic':
                check_code(p)
                needed = check_weakened(p)
            if len(faults) == before:
                how = 'as known' if needed is None else f'holds, {needed} weakened orders are caught'
                print(f'ok {path.stem}: {p.name}: {how} ({", ".join(p.models)}), {time.monotonic() - begin:.1f} s')
    return 1 if faults else 0


sys.exit(main())
