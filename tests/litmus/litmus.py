# SPDX-License-Identifier: Apache-2.0
"""litmus: every execution of a small concurrent program that a memory model allows.

Two models. "c11" is C11 as repaired by Lahav et al., Repairing Sequential Consistency in C/C++11
(PLDI 2017), without its axiom against load buffering, so that what it forbids is forbidden by every
compiler and processor; a data race counts as a failure. "aarch64" is the axiomatic model of the Arm
architecture with the instructions that gcc and clang choose, in the weakest form of each: LDAPR for
acquire, no extra ordering from a compare-and-swap. It knows no races and no compiler.

An execution is a choice of the write that each read takes its value from and of the order of the
writes to each location. All choices are enumerated, and the axioms decide. Relations are lists of
bit sets: r[i] has bit j where (i, j) is in r. program.py reads the programs.
"""

import itertools


class Event:
    """A read, a write or a fence. order: None for memory that is not atomic."""

    def __init__(self, thread, kind, loc=None, value=None, order=None):
        self.thread, self.kind, self.loc, self.value, self.order = thread, kind, loc, value, order
        self.partner = None  # of a read-modify-write: the other event
        self.needs = ()  # the reads that a written value comes from
        self.decided_by = ()  # the reads on which it depends whether this event is executed

    def acquires(self):
        return self.order in ('acquire', 'acq_rel', 'seq_cst') and self.kind != 'W'

    def releases(self):
        return self.order in ('release', 'acq_rel', 'seq_cst') and self.kind != 'R'


# ---- relations --------------------------------------------------------------------------------


def union(*relations):
    out = list(relations[0])
    for r in relations[1:]:
        for i, row in enumerate(r):
            out[i] |= row
    return out


def then(a, b):
    out = []
    for row in a:
        reach, i = 0, 0
        while row:
            if row & 1:
                reach |= b[i]
            row >>= 1
            i += 1
        out.append(reach)
    return out


def closure(r):
    out = list(r)
    for k, bit in enumerate(1 << i for i in range(len(r))):
        for i in range(len(r)):
            if out[i] & bit:
                out[i] |= out[k]
    return out


def maybe(r):
    return [row | 1 << i for i, row in enumerate(r)]


def only(first, r, last):
    """The pairs of r from the set first to the set last."""
    return [row & last if first >> i & 1 else 0 for i, row in enumerate(r)]


def has_cycle(r):
    return any(row >> i & 1 for i, row in enumerate(closure(r)))


def pairs(n, test):
    return [sum(1 << j for j in range(n) if j != i and test(i, j)) for i in range(n)]


# ---- an execution -----------------------------------------------------------------------------


class Execution:
    def __init__(self, events, sources, orders):
        """sources: the write of each read. orders: the writes of each location, first to last."""
        self.events = e = events
        self.n = n = len(events)
        self.all = (1 << n) - 1
        at = {id(x): i for i, x in enumerate(e)}
        self.po = pairs(n, lambda i, j: e[i].thread == e[j].thread and i < j or e[i].thread < 0 <= e[j].thread)
        self.rf = [0] * n
        for read, write in sources:
            self.rf[at[id(write)]] |= 1 << at[id(read)]
        self.mo = [0] * n
        for writes in orders:
            for a, b in itertools.combinations(writes, 2):
                self.mo[at[id(a)]] |= 1 << at[id(b)]
        self.rmw = pairs(n, lambda i, j: e[i].partner is e[j] and e[i].kind == 'R')
        source_of = {at[id(read)]: at[id(write)] for read, write in sources}
        self.rb = [self.mo[source_of[i]] & ~(1 << i) if i in source_of else 0 for i in range(n)]
        self.same = pairs(n, lambda i, j: e[i].loc is not None and e[i].loc == e[j].loc)
        self.outer = pairs(n, lambda i, j: e[i].thread != e[j].thread)

    def set(self, test):
        return sum(1 << i for i, x in enumerate(self.events) if test(x))

    def both(self, a, b):
        return [x & y for x, y in zip(a, b)]

    def is_coherent(self):
        """Each location by itself is sequentially consistent, and a read-modify-write is atomic."""
        here = self.both(self.po, self.same)
        if has_cycle(union(here, self.rf, self.mo, self.rb)):
            return False
        return not any(x & y for x, y in zip(self.rmw, then(self.rb, self.mo)))


def c11(x):
    """None if C11 does not allow the execution x, otherwise whether x has a data race."""
    atomic = x.set(lambda e: e.order is not None and e.kind != 'F')
    fences = x.set(lambda e: e.kind == 'F')
    writes, reads = x.set(lambda e: e.kind == 'W'), x.set(lambda e: e.kind == 'R')
    release, acquire = x.set(Event.releases), x.set(Event.acquires)
    # A release sequence: the write, and the read-modify-writes that continue it.
    sequence = maybe(closure(then(x.rf, x.rmw)))
    heads = only(x.all, maybe(only(fences, x.po, x.all)), writes & atomic)
    tails = only(reads & atomic, maybe(only(x.all, x.po, fences)), x.all)
    sw = only(release, then(then(then(heads, only(writes & atomic, sequence, writes)), x.rf), tails), acquire)
    hb = closure(union(x.po, sw))
    eco = closure(union(x.rf, x.mo, x.rb))
    if has_cycle(hb) or any(row >> i & 1 for i, row in enumerate(then(hb, maybe(eco)))):
        return None
    seq = x.set(lambda e: e.order == 'seq_cst')
    there = [p & ~s & x.all for p, s in zip(x.po, x.same)]
    scb = union(x.po, then(then(there, hb), there), x.both(hb, x.same), x.mo, x.rb)
    seq_fences = seq & fences
    before = union([1 << i if seq >> i & 1 else 0 for i in range(x.n)], only(seq_fences, maybe(hb), x.all))
    after = union([1 << i if seq >> i & 1 else 0 for i in range(x.n)], only(x.all, maybe(hb), seq_fences))
    psc = then(then(before, scb), after)
    between = only(seq_fences, union(hb, then(then(hb, eco), hb)), seq_fences)
    if has_cycle(union(psc, between)):
        return None
    conflicts = pairs(x.n, lambda i, j: (writes >> i | writes >> j) & 1
                      and not (atomic >> i & atomic >> j & 1) and bool(x.both(x.same, x.outer)[i] >> j & 1))
    return any(row & ~hb[i] & ~sum(1 << j for j in range(x.n) if hb[j] >> i & 1)
               for i, row in enumerate(conflicts))


def aarch64(x):
    """None if the architecture does not allow the execution x, otherwise False: it knows no data race."""
    e, n = x.events, x.n
    reads, writes = x.set(lambda e: e.kind == 'R'), x.set(lambda e: e.kind == 'W')
    fence = x.set(lambda e: e.kind == 'F' and e.order != 'acquire')  # DMB ISH
    load_fence = x.set(lambda e: e.kind == 'F' and e.order == 'acquire')  # DMB ISHLD
    ldapr = x.set(lambda e: e.kind == 'R' and e.acquires())
    ldar = x.set(lambda e: e.kind == 'R' and (e.order == 'seq_cst' or e.partner is not None and e.acquires()))
    stlr = x.set(lambda e: e.kind == 'W' and e.releases())
    obs = x.both(union(x.rf, x.mo, x.rb), x.outer)
    data = pairs(n, lambda i, j: any(r is e[i] for r in e[j].needs))
    control = pairs(n, lambda i, j: e[j].kind == 'W' and any(r is e[i] for r in e[j].decided_by))
    inner_rf = [r & ~o for r, o in zip(x.rf, x.outer)]
    dob = union(data, control, then(data, inner_rf))
    aob = union(x.rmw, only(x.set(lambda e: e.kind == 'W' and e.partner is not None), inner_rf, ldapr))
    bob = union(then(only(x.all, x.po, fence), x.po), only(stlr, x.po, ldar),
                then(only(reads, x.po, load_fence), x.po), only(ldapr, x.po, x.all), only(x.all, x.po, stlr))
    return None if has_cycle(union(obs, dob, aob, bob)) else False


MODELS = {'c11': c11, 'aarch64': aarch64}

# ---- all executions ---------------------------------------------------------------------------


def runs(statements, thread, values, state=None):
    """Yields every way through a thread's statements, with every value for each read: (events, registers)."""
    events, registers, decided = state or ((), {}, ())
    if not statements:
        yield events, {r: value for r, (value, _) in registers.items()}
        return
    s, rest = statements[0], statements[1:]

    def add(*new):
        for event in new:
            event.decided_by = decided
        return events + new

    if s.kind == 'if':
        value, needs = s.operand(registers)
        inside = s.body if (value == s.value) == s.equal else ()
        yield from runs(tuple(inside) + rest, thread, values, (events, registers, decided + needs))
    elif s.kind == 'fence':
        yield from runs(rest, thread, values, (add(Event(thread, 'F', order=s.order)), registers, decided))
    elif s.kind == 'store':
        value, needs = s.operand(registers)
        write = Event(thread, 'W', s.loc, value, s.order)
        write.needs = needs
        yield from runs(rest, thread, values, (add(write), registers, decided))
    else:
        for value in sorted(values[s.loc]):
            read = Event(thread, 'R', s.loc, value, s.order)
            new = [read]
            written, needs = s.written(value, registers)
            if written is not None:
                write = Event(thread, 'W', s.loc, written, s.order)
                write.needs = needs
                read.partner, write.partner = write, read
                new.append(write)
            after = dict(registers)
            after[s.register] = (value, (read,))
            yield from runs(rest, thread, values, (add(*new), after, decided))


def domain(program):
    """The values that each location may ever have."""
    values = {loc: {0} for loc in program.locations}
    for _ in range(4):  # increments of increments; no program has more
        for thread, statements in enumerate(program.threads):
            for events, _ in runs(tuple(statements), thread, {k: set(v) for k, v in values.items()}):
                for event in events:
                    if event.kind == 'W':
                        values[event.loc].add(event.value)
    return values


def executions(program, model):
    """Yields (registers by thread, last value of each location, has a race) of each allowed execution."""
    judge, values = MODELS[model], domain(program)
    ways = [list(runs(tuple(t), i, values)) for i, t in enumerate(program.threads)]
    for way in itertools.product(*ways):
        begin = [Event(-1, 'W', loc, 0) for loc in sorted(program.locations)]
        events = begin + [e for es, _ in way for e in es]
        reads = [e for e in events if e.kind == 'R']
        writes = {loc: [e for e in events if e.kind == 'W' and e.loc == loc] for loc in program.locations}
        choices = [[w for w in writes[r.loc] if w.value == r.value and w is not r.partner] for r in reads]
        if not all(choices):
            continue
        lines = [[(w[0],) + p for p in itertools.permutations(w[1:])] for w in writes.values()]
        for orders in itertools.product(*lines):
            last = {o[-1].loc: o[-1].value for o in orders}
            for chosen in itertools.product(*choices):
                x = Execution(events, list(zip(reads, chosen)), orders)
                raced = judge(x) if x.is_coherent() else None
                if raced is not None:
                    yield [registers for _, registers in way], last, raced


def fails(program, model):
    """What the program must not do and can do: 'a data race', the outcome, or None."""
    for registers, last, raced in executions(program, model):
        if raced:
            return 'a data race'
        if program.is_bad(registers, last):
            return ' '.join(f'{t}:{r}={v}' for t, rs in enumerate(registers) for r, v in sorted(rs.items()))
    return None

