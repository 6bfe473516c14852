/* SPDX-License-Identifier: Apache-2.0
 *
 * cycles: see cycles.h.
 *
 * The graph's nodes are operations. An edge leads from an operation that a rank has not submitted
 * to an operation that the rank waits in. A cycle whose edges all existed at one time, all seen
 * within one stall period from then on, stays: each of its ranks is blocked until the next one
 * submits something. An operation whose name was used again meanwhile is no exception, since
 * an inquiry about it comes a stall period later.
 */
#include "core/negotiate/cycles.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/negotiate/cycle.h"

enum {
    RANKS_MAX = 4,   /* edges between the same two operations: a few ranks stand for all */
    REPORTS_MAX = 8, /* in one call of cycles_tick() */
    SHOWN_MAX = 4,   /* edges in a text */
    SETS_MAX = 3,    /* sets in a text */
    GROUP_SHOWN = 70,
    NAME_SHOWN = 50,
    ADVICE_MAX = 260, /* bytes of the last two sentences of a text */
};

struct op {
    struct blocked_in what;
    uint64_t hash;
    bool used;
    bool was_told;
    uint64_t told; /* when it was in a report */
};

struct edge {
    int rank, lacks, waits; /* the latter two are numbers in ops */
    uint64_t since, seen;
};

struct cycles {
    uint64_t period, due;
    struct op ops[CYCLE_NODES];
    struct edge edges[CYCLE_EDGES];
    int n;
};

/* ---- messages ------------------------------------------------------------------------------- */

static void write_in(const struct blocked_in *in, struct buf *out)
{
    buf_put_u32(out, (uint32_t)in->set);
    buf_put_str(out, in->group);
    buf_put_str(out, in->name);
}

/* u32 rank, u64 ns, then of the operation that it lacks and of the one that it waits in: u32 set,
 * str group, str name */
void blocked_write(const struct blocked *b, struct buf *out)
{
    buf_put_u32(out, (uint32_t)b->rank);
    buf_put_u64(out, b->since_ns);
    write_in(&b->lacks, out);
    write_in(&b->waits, out);
}

static bool read_in(struct reader *r, struct blocked_in *in)
{
    uint32_t set = reader_u32(r);
    reader_str(r, in->group, sizeof(in->group));
    reader_str(r, in->name, sizeof(in->name));
    in->set = (int)set;
    return !r->failed && set <= INT_MAX && (set == 0) == (in->group[0] == 0) && in->name[0];
}

int blocked_read(struct reader *r, int ranks, struct blocked *ret)
{
    struct blocked b = {0};
    uint32_t rank = reader_u32(r);
    b.since_ns = reader_u64(r);
    if (!read_in(r, &b.lacks) || !read_in(r, &b.waits) || !reader_ok(r) || rank >= (uint32_t)ranks)
        return -EPROTO;
    b.rank = (int)rank;
    *ret = b;
    return 0;
}

/* u32 set, u32 asker, u32 peer, u8 sends, u32 tag */
void asked_write(const struct asked *a, struct buf *out)
{
    buf_put_u32(out, (uint32_t)a->set);
    buf_put_u32(out, (uint32_t)a->asker);
    buf_put_u32(out, (uint32_t)a->peer);
    buf_put_u8(out, a->sends);
    buf_put_u32(out, a->tag);
}

int asked_read(struct reader *r, int ranks, struct asked *ret)
{
    uint32_t set = reader_u32(r), asker = reader_u32(r), peer = reader_u32(r);
    uint8_t sends = reader_u8(r);
    uint32_t tag = reader_u32(r);
    if (!reader_ok(r) || set > INT_MAX || asker >= (uint32_t)ranks || peer >= (uint32_t)ranks ||
        sends > 1)
        return -EPROTO;
    *ret = (struct asked){
        .set = (int)set, .asker = (int)asker, .peer = (int)peer, .sends = sends, .tag = tag};
    return 0;
}

void asked_name(const struct asked *a, char *name, size_t size)
{
    snprintf(name, size, "message from rank %d to rank %d, tag %u", a->sends ? a->asker : a->peer,
             a->sends ? a->peer : a->asker, a->tag);
}

/* ---- what ranks have told ------------------------------------------------------------------- */

struct cycles *cycles_create(uint64_t period)
{
    struct cycles *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->period = period;
    c->due = UINT64_MAX;
    return c;
}

void cycles_destroy(struct cycles *c)
{
    free(c);
}

/* Drops edges that no rank has reported for two stall periods: a rank that stays blocked reports
 * again in each one. Keeps operations that were printed in that time, so that they are not printed
 * again too early. */
static void expire(struct cycles *c, uint64_t now)
{
    int kept = 0;
    for (int i = 0; i < CYCLE_NODES; i++)
        c->ops[i].used = c->ops[i].was_told && now - c->ops[i].told < 2 * c->period;
    for (int i = 0; i < c->n; i++) {
        struct edge e = c->edges[i];
        if (now - e.seen >= 2 * c->period)
            continue;
        c->ops[e.lacks].used = c->ops[e.waits].used = true;
        c->edges[kept++] = e;
    }
    c->n = kept;
}

/* The operation's number in ops, where it gets a place if it has none; -1: there is no room. */
static int number_of(struct cycles *c, const struct blocked_in *in)
{
    uint64_t hash = hash_mix(hash_str(in->name) ^ (uint64_t)in->set);
    int room = -1;
    for (int i = 0; i < CYCLE_NODES; i++) {
        const struct op *o = &c->ops[i];
        if (!o->used)
            room = room < 0 ? i : room;
        else if (o->hash == hash && o->what.set == in->set && strcmp(o->what.name, in->name) == 0)
            return i;
    }
    if (room >= 0)
        c->ops[room] = (struct op){.what = *in, .hash = hash, .used = true};
    return room;
}

/* The place of an edge: its own, that of an old one between the same operations, or a new one;
 * NULL: there is none for it. */
static struct edge *place_of(struct cycles *c, const struct edge *e)
{
    struct edge *oldest = NULL;
    int same = 0;
    for (int i = 0; i < c->n; i++) {
        struct edge *other = &c->edges[i];
        if (other->lacks != e->lacks || other->waits != e->waits)
            continue;
        if (other->rank == e->rank)
            return other;
        same++;
        if (!oldest || other->seen < oldest->seen)
            oldest = other;
    }
    if (same == RANKS_MAX)
        return e->seen - oldest->seen >= c->period ? oldest : NULL;
    return c->n < CYCLE_EDGES ? &c->edges[c->n++] : NULL;
}

void cycles_add(struct cycles *c, const struct blocked *b, uint64_t now)
{
    uint64_t eighth = c->period / 8, pause = eighth < CLOCK_S ? eighth : CLOCK_S;
    struct edge e = {.rank = b->rank, .seen = now};
    e.since = b->since_ns < now ? now - b->since_ns : 0;
    expire(c, now);
    e.lacks = number_of(c, &b->lacks);
    e.waits = number_of(c, &b->waits);
    if (e.lacks < 0 || e.waits < 0 || e.lacks == e.waits)
        return;
    struct edge *place = place_of(c, &e);
    if (!place)
        return;
    *place = e;
    if (c->due == UINT64_MAX)
        c->due = now + pause; /* other ranks tell theirs at the same time */
}

/* ---- reports -------------------------------------------------------------------------------- */

struct text {
    char at[CYCLES_TEXT];
    size_t len, end; /* bytes that may be written before this */
};

static void put(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at + t->len, t->end - t->len, fmt, ap);
    va_end(ap);
    size_t room = t->end - t->len - 1;
    t->len += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

static const struct blocked_in *waits_in(const struct cycles *c, int edge)
{
    return &c->ops[c->edges[edge].waits].what;
}

static void put_set(struct text *t, const struct blocked_in *in, bool whole)
{
    if (in->set == 0)
        put(t, "the world");
    else if (whole && strlen(in->group) <= GROUP_SHOWN)
        put(t, "%s", in->group);
    else
        put(t, "set %d", in->set);
}

/* Writes the sets of a cycle's operations. Returns how many they are. */
static int put_sets(const struct cycles *c, const int *cycle, int n, struct text *t)
{
    int sets[CYCLE_NODES], which[CYCLE_NODES], count = 0;
    for (int i = 0; i < n; i++) {
        int k = 0, set = waits_in(c, cycle[i])->set;
        while (k < count && sets[k] != set)
            k++;
        if (k < count)
            continue;
        which[count] = cycle[i];
        sets[count++] = set;
    }
    if (count == 1)
        put(t, "operations of ");
    for (int i = 0; i < count && i < SETS_MAX; i++) {
        const char *before = i == 0 ? "" : i + 1 == count ? " and " : ", ";
        put(t, "%s", before);
        put_set(t, waits_in(c, which[i]), true);
    }
    if (count > SETS_MAX)
        put(t, " and %d more set%s", count - SETS_MAX, count - SETS_MAX == 1 ? "" : "s");
    return count;
}

static void write_text(const struct cycles *c, const int *cycle, int n, struct text *t)
{
    int first = 0;
    *t = (struct text){.end = sizeof(t->at) - ADVICE_MAX};
    for (int i = 1; i < n; i++)
        if (c->edges[cycle[i]].rank < c->edges[cycle[first]].rank)
            first = i;
    int line[CYCLE_NODES];
    for (int i = 0; i < n; i++)
        line[i] = cycle[(first + i) % n];
    int sets = put_sets(c, line, n, t);
    put(t, " wait for each other: ");
    for (int i = 0; i < n && i < SHOWN_MAX; i++) {
        const struct blocked_in *in = waits_in(c, line[i]);
        put(t, "%srank %d waits for '%.*s' in ", i ? "; " : "", c->edges[line[i]].rank, NAME_SHOWN,
            in->name);
        put_set(t, in, false);
        put(t, ", which rank %d has not submitted", c->edges[line[(i + 1) % n]].rank);
    }
    if (n > SHOWN_MAX)
        put(t, "; and so on over %d more ranks", n - SHOWN_MAX);
    t->end = sizeof(t->at);
    put(t,
        ". None of these ranks goes on, unless another of its threads submits what is missing. "
        "Submit the operations%s before you wait for one of them, or in the same order on all "
        "ranks.",
        sets > 1 ? " of sets that share ranks" : "");
}

/* Finds a cycle of operations that were in no report for a period. */
static int find(const struct cycles *c, uint64_t now, int *ret)
{
    struct cycle_edge edges[CYCLE_EDGES];
    int which[CYCLE_EDGES], n = 0;
    bool told[CYCLE_NODES];
    for (int i = 0; i < CYCLE_NODES; i++)
        told[i] = c->ops[i].was_told && now - c->ops[i].told < c->period / 8 * 7;
    for (int i = 0; i < c->n; i++) {
        const struct edge *e = &c->edges[i];
        if (told[e->lacks] || told[e->waits])
            continue;
        which[n] = i;
        edges[n++] = (struct cycle_edge){
            .from = e->lacks, .to = e->waits, .since = e->since, .seen = e->seen};
    }
    int length = cycle_find(edges, n, c->period, ret);
    for (int i = 0; i < length; i++)
        ret[i] = which[ret[i]];
    return length;
}

uint64_t cycles_tick(struct cycles *c, uint64_t now, void (*say)(void *ctx, const char *text),
                     void *ctx)
{
    int cycle[CYCLE_NODES], n;
    if (now < c->due)
        return c->due;
    c->due = UINT64_MAX;
    expire(c, now);
    for (int i = 0; i < REPORTS_MAX && (n = find(c, now, cycle)) > 0; i++) {
        struct text t;
        write_text(c, cycle, n, &t);
        for (int k = 0; k < n; k++) {
            struct op *o = &c->ops[c->edges[cycle[k]].waits];
            o->was_told = true;
            o->told = now;
        }
        say(ctx, t.at);
    }
    return c->due;
}
