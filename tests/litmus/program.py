# SPDX-License-Identifier: Apache-2.0
"""program: a litmus test as text: a subset of herd7's C, with C11's atomic functions.

    C name
    (* model: c11 aarch64 *)                     which memory models (both)
    (* code: core/transport/shm.c: text *)       a source line that the test models: it must be there
    { }                                          everything is 0 at first
    P0 (atomic_int *flag, int *data) {           int: not atomic
      *data = 1;
      atomic_store_explicit(flag, 1, memory_order_release);   // spare: a reason
    }
    P1 (atomic_int *flag, int *data) {
      int r0 = atomic_load_explicit(flag, memory_order_acquire);
      if (r0 == 1) {
        int r1 = *data;
      }
    }
    ~exists (1:r0=1 /\\ 1:r1=0)

A register that was not written has no value: each comparison with it is false. A compare-and-swap
takes the expected value as a number: atomic_compare_exchange_strong_explicit(x, 0, 1, ORDER). A loop
that waits is an `if`, which models the last read of the executions in which the loop ends.
"""

import re

ATOMIC_ORDERS = ('relaxed', 'acquire', 'release', 'acq_rel', 'seq_cst')
# The weaker orders. None: the fence is left out.
WEAKER = {
    'load': {'seq_cst': ('acquire', 'relaxed'), 'acquire': ('relaxed',)},
    'store': {'seq_cst': ('release', 'relaxed'), 'release': ('relaxed',)},
    'rmw': {'seq_cst': ('acq_rel', 'relaxed'), 'acq_rel': ('relaxed',)},
    'fence': {'seq_cst': (None,), 'acq_rel': (None,), 'acquire': (None,), 'release': (None,)},
}


class Statement:
    """kind: load, store, rmw, fence or if."""

    def __init__(self, kind, line, loc=None, order=None, register=None, source=None):
        self.kind, self.line, self.loc, self.order = kind, line, loc, order
        self.register, self.source = register, source
        self.add = self.expected = self.value = None
        self.equal, self.body = True, []

    def operand(self, registers):
        if re.fullmatch(r'\d+', self.source):
            return int(self.source), ()
        return registers.get(self.source, (None, ()))

    def written(self, read, registers):
        """What a read-modify-write writes: (value or None, the reads on which it depends)."""
        if self.kind != 'rmw' or (self.expected is not None and read != self.expected):
            return None, ()
        value, needs = self.operand(registers)
        return (read + value if self.add else value), needs


VALUE = r'(\w+)'
ORDER = r'memory_order_(\w+)'
FORMS = [
    (rf'atomic_store_explicit\((\w+), {VALUE}, {ORDER}\)',
     lambda m, line: Statement('store', line, m[1], m[3], source=m[2])),
    (rf'\*(\w+) = {VALUE}', lambda m, line: Statement('store', line, m[1], source=m[2])),
    (rf'atomic_thread_fence\({ORDER}\)', lambda m, line: Statement('fence', line, order=m[1])),
    (rf'(?:int )?(\w+) = atomic_load_explicit\((\w+), {ORDER}\)',
     lambda m, line: Statement('load', line, m[2], m[3], m[1])),
    (r'(?:int )?(\w+) = \*(\w+)', lambda m, line: Statement('load', line, m[2], None, m[1])),
]


def rmw_of(text, line):
    m = re.fullmatch(rf'(?:int )?(\w+) = atomic_(exchange|fetch_add|compare_exchange_strong)_explicit'
                     rf'\((\w+), (?:(\d+), )?{VALUE}, {ORDER}\)', text)
    if not m:
        return None
    s = Statement('rmw', line, m[3], m[6], m[1], m[5])
    s.add = m[2] == 'fetch_add'
    s.expected = int(m[4]) if m[2] == 'compare_exchange_strong' else None
    return s


def statement_of(text, line):
    for pattern, make in FORMS:
        m = re.fullmatch(pattern, text)
        if m:
            return make(m, line)
    return rmw_of(text, line)


class Program:
    def __init__(self, text, name='?'):
        self.text, self.name = text, name
        self.threads, self.locations, self.spare = [], set(), set()
        self.models = ('c11', 'aarch64')
        self.code = []
        self.read_notes()
        self.read_threads()
        found = re.search(r'^(~?exists) *\((.*)\)\s*$', text, re.M)
        if not found:
            raise ValueError(f'{name}: no condition')
        self.allowed = found[1] == 'exists'
        self.condition = found[2]

    def read_notes(self):
        for note in re.findall(r'\(\*\s*(.*?)\s*\*\)', self.text, re.S):
            note = ' '.join(note.split())
            if note.startswith('model: '):
                self.models = tuple(note[7:].split())
            elif note.startswith('code: '):
                self.code.append(tuple(note[6:].split(': ', 1)))

    def read_threads(self):
        """The lines between the threads' heads and the condition; stack: the open blocks."""
        stack = []
        for number, raw in enumerate(self.text.splitlines(), 1):
            line, _, note = raw.partition('//')
            line = line.strip().rstrip(';')
            head = re.fullmatch(r'P\d+ ?\((.*)\) ?\{', line)
            branch = re.fullmatch(r'if \((\w+) (==|!=) (\d+)\) \{', line)
            if note.strip().startswith('spare: '):
                self.spare.add(number)
            if head:
                self.locations |= set(re.findall(r'\*(\w+)', head[1]))
                self.threads.append([])
                stack = [self.threads[-1]]
            elif stack and branch:
                s = Statement('if', number, source=branch[1])
                s.equal, s.value = branch[2] == '==', int(branch[3])
                stack[-1].append(s)
                stack.append(s.body)
            elif stack and line == '}':
                stack.pop()
            elif stack and line:
                s = statement_of(line, number)
                if not s or (s.order and s.order not in ATOMIC_ORDERS):
                    raise ValueError(f'{self.name}:{number}: cannot read "{line}"')
                stack[-1].append(s)

    def is_bad(self, registers, last):
        """Whether the condition is true for these registers of threads and last values of locations."""
        def term(m):
            value = registers[int(m[1])].get(m[2]) if m[1] else last[m[2]]
            return str(value is not None and value == int(m[3]))
        text = re.sub(r'(?:(\d+):)?(\w+) ?= ?(\d+)', term, self.condition)
        text = text.replace('/\\', ' and ').replace('\\/', ' or ').replace('~', ' not ')
        if re.sub(r'True|False|and|or|not|[\s()]', '', text):
            raise ValueError(f'{self.name}: cannot read the condition {self.condition}')
        return eval(text)  # pylint: disable=eval-used

    def statements(self):
        def walk(body):
            for s in body:
                yield s
                yield from walk(s.body)
        for thread in self.threads:
            yield from walk(thread)

    def weakened(self):
        """(line, order, [programs]) for each order: the programs with a weaker one in its place."""
        for i, s in enumerate(self.statements()):
            others = []
            for weaker in WEAKER.get(s.kind, {}).get(s.order, ()):
                other = Program(self.text, self.name)
                changed = list(other.statements())[i]
                if weaker:
                    changed.order = weaker
                else:  # a condition that is never true
                    changed.kind, changed.source, changed.value = 'if', '0', 1
                others.append(other)
            if others:
                yield s.line, s.order, others
