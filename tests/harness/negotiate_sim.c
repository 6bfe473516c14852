/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_sim: see negotiate_sim.h.
 */
#include "tests/harness/negotiate_sim_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_random(struct sim *s, uint64_t below)
{
    s->rng ^= s->rng << 13;
    s->rng ^= s->rng >> 7;
    s->rng ^= s->rng << 17;
    return below ? (s->rng * 0x2545f4914f6cdd1dULL >> 11) % below : 0;
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    if (s->why[0])
        return;
    int n = snprintf(s->why, sizeof(s->why), "seed %llu: ", (unsigned long long)s->seed);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->why + n, sizeof(s->why) - (size_t)n, fmt, ap);
    va_end(ap);
}

int64_t sim_dim0(int name, uint64_t version, int rank)
{
    /* Between versions only some ranks change. */
    uint64_t changes = (uint64_t)rank % 3 == version % 3 ? version : 0;
    return (int64_t)((uint64_t)name * 7 + changes * 13 + (uint64_t)rank * 3) % 11;
}

struct signature sim_allreduce(int64_t count)
{
    return (struct signature){.kind = HVD_ALLREDUCE,
                              .dtype = HVD_FLOAT32,
                              .op = HVD_SUM,
                              .ndim = 1,
                              .device = -1,
                              .prescale = 1,
                              .postscale = 1,
                              .shape = {count}};
}

struct signature sim_allgather(void)
{
    struct signature sig = sim_allreduce(0);
    sig.kind = HVD_ALLGATHER;
    sig.ndim = 2;
    sig.shape[1] = 5;
    return sig;
}

struct signature sim_on_gpu(struct signature sig)
{
    sig.device = 0;
    return sig;
}

bool sim_binds(const struct signature *sig)
{
    return sig->device >= 0 && sig->dtype != HVD_FLOAT16;
}

uint64_t sim_executed(const struct sim_rank *r)
{
    return r->lanes[SIM_HOST].executed + r->lanes[SIM_BOUND].executed;
}

/* ---- the engine's part --------------------------------------------------------------------- */

static void describe(struct sim_rank *r, const struct sim_batch *b, char *text, size_t size)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < b->n && len < size; i++) {
        struct sim_tensor *t = sim_by_id(r, b->ids[i]);
        int n = snprintf(text + len, size - len, " t%d#%llu", t ? (int)(t - r->tensors) : -1,
                         t ? (unsigned long long)(t->ran + t->failed) : 0);
        len += n > 0 ? (size_t)n : 0;
    }
}

void sim_start(struct sim_rank *r, enum sim_lane_kind kind, struct sim_batch *b)
{
    struct sim_log *log = &r->sim->logs[kind];
    char text[SIM_NAMES * 16];
    describe(r, b, text, sizeof(text));
    b->place = r->lanes[kind].started++;
    if (b->place >= log->n) {
        size_t n = log->n ? 2 * log->n : 256;
        log->texts = realloc(log->texts, n * sizeof(char *));
        log->started = realloc(log->started, n * sizeof(int));
        memset(log->texts + log->n, 0, (n - log->n) * sizeof(char *));
        memset(log->started + log->n, 0, (n - log->n) * sizeof(int));
        log->n = n;
    }
    char **at = &log->texts[b->place];
    if (!*at)
        *at = strdup(text);
    else if (strcmp(*at, text) != 0)
        sim_fail(r->sim, "lane %d, batch %llu: rank %d has%s, another%s", kind,
                 (unsigned long long)b->place, r->rank, text, *at);
    log->started[b->place]++;
    b->started = true;
}

/* Starts the first batch of the host lane. */
static bool start_batch(struct sim_rank *r)
{
    struct sim_batch *b = r->lanes[SIM_HOST].first;
    if (!b || b->started)
        return false;
    sim_start(r, SIM_HOST, b);
    return true;
}

/* Ends a batch that every rank has started, if there is one: the first of the host lane, or any of
 * the bound ones. */
static bool end_batch(struct sim_rank *r, enum sim_lane_kind kind)
{
    struct sim *s = r->sim;
    struct sim_lane *lane = &r->lanes[kind];
    struct sim_batch **at = &lane->first;
    for (uint64_t skip = kind == SIM_BOUND ? sim_random(s, 4) : 0; skip && *at; skip--)
        at = &(*at)->next;
    struct sim_batch *b = *at ? *at : lane->first;
    at = *at ? at : &lane->first;
    if (!b || !b->started || s->logs[kind].started[b->place] < s->n)
        return false;
    for (size_t i = 0; i < b->n; i++) {
        struct sim_tensor *t = sim_by_id(r, b->ids[i]);
        if (!t)
            continue;
        t->state = SIM_DONE;
        t->ran++;
    }
    if (b->wrong)
        sim_fail(s, "rank %d ran a batch with wrong tables", r->rank);
    *at = b->next;
    if (!*at)
        lane->end = at;
    lane->executed++;
    s->progress++;
    negotiate_done(r->n, b->number);
    free(b);
    return true;
}

/* ---- the programs -------------------------------------------------------------------------- */

static bool try_fast(struct sim_rank *r, struct sim_tensor *t, const char *name,
                     const struct signature *sig)
{
    struct negotiate_next next;
    struct sim_lane *lane = &r->lanes[SIM_HOST];
    if (!r->eager || !negotiate_try_next(r->n, name, sig, &next))
        return false;
    if (lane->first || sim_binds(sig) || next.number < r->next)
        sim_fail(r->sim, "rank %d: the fast path, but another batch is next", r->rank);
    struct sim_batch *b = malloc(sizeof(*b) + sizeof(uint64_t));
    *b = (struct sim_batch){.number = next.number, .frozen = true, .n = 1};
    b->ids[0] = next.id;
    lane->first = b;
    lane->end = &b->next;
    r->next = next.number + 1;
    r->fast++;
    t->id = next.id;
    return true;
}

static void submit(struct sim_rank *r, const struct sim_step *step)
{
    struct sim *s = r->sim;
    char name[16];
    snprintf(name, sizeof(name), "t%d", step->name);
    struct sim_tensor *t = &r->tensors[step->name];
    struct signature sig = step->sig;
    if (sig.kind == HVD_ALLGATHER)
        sig.shape[0] = sim_dim0(step->name, step->version, r->rank);
    bool exists = t->state == SIM_UNDER_WAY;
    uint64_t old = t->id;
    if (!exists) {
        t->neutral = false;
        t->state = SIM_UNDER_WAY;
        t->sig = sig;
        t->version = step->version;
    }
    struct err err = {0};
    if (!exists && try_fast(r, t, name, &sig)) {
        t->submitted++;
        return;
    }
    int rc = negotiate_submit(r->n, name, &sig, s->now, &t->id, &err);
    if (rc != (exists ? -EEXIST : 0))
        sim_fail(s, "rank %d: submit of %s: %d %s", r->rank, name, rc, err.msg);
    if (exists)
        t->id = old;
    else
        t->submitted++;
}

static void submit_neutral(struct sim_rank *r)
{
    struct sim_want want = r->wants[--r->nwants];
    struct sim_tensor *t = &r->tensors[want.name];
    struct err err = {0};
    char name[16];
    snprintf(name, sizeof(name), "t%d", want.name);
    if (!negotiate_wants(r->n, name))
        sim_fail(r->sim, "rank %d was asked for %s, and is not any more", r->rank, name);
    t->neutral = true;
    t->state = SIM_UNDER_WAY;
    t->sig = want.sig;
    if (negotiate_submit(r->n, name, &want.sig, r->sim->now, &t->id, &err) < 0)
        sim_fail(r->sim, "rank %d: the neutral %s: %s", r->rank, name, err.msg);
    t->submitted++;
    r->neutrals++;
}

static bool has_own(const struct sim_rank *r, bool neutral)
{
    for (int i = 0; i < SIM_NAMES; i++)
        if (r->tensors[i].state == SIM_UNDER_WAY && r->tensors[i].neutral == neutral)
            return true;
    return false;
}

/* The rank has run out of work. Returns false when it waits. */
static bool join_step(struct sim_rank *r)
{
    if (r->join == NEGOTIATE_ACTIVE && !r->joined) {
        negotiate_join(r->n, r->join = NEGOTIATE_JOINED);
    } else if (r->nwants) {
        submit_neutral(r);
    } else if (r->join == NEGOTIATE_JOINED && !has_own(r, false)) {
        negotiate_join(r->n, r->join = NEGOTIATE_DRAINED);
    } else if (r->joined && !has_own(r, true)) {
        r->joined = false;
        r->joins++;
        r->at++;
    } else {
        return false;
    }
    r->sim->progress++;
    return true;
}

static bool has_batches(const struct sim_rank *r)
{
    return r->lanes[SIM_HOST].first || r->lanes[SIM_BOUND].first;
}

/* The rank leaves when it has run all batches. If others have begun one that it cannot run any
 * more, the real engine aborts the job. */
static bool leave_step(struct sim_rank *r)
{
    struct sim *s = r->sim;
    if (!negotiate_end(r->n) || has_batches(r))
        return false;
    s->aborted = s->aborted || negotiate_owes(r->n);
    s->left++;
    r->at++;
    s->progress++;
    return true;
}

/* Whether the tensor that the rank waits for can never run: another rank has left without it, and
 * the log has ended. */
static bool waits_in_vain(struct sim_rank *r)
{
    return r->sim->left > 0 && negotiate_end(r->n) && !has_batches(r) && !negotiate_owes(r->n);
}

/* Runs the rank's next instruction. Returns false when the rank waits. */
static bool program_step(struct sim_rank *r)
{
    struct sim *s = r->sim;
    if (r->at == r->nsteps || r->awake > s->now)
        return false;
    const struct sim_step *step = &r->steps[r->at];
    struct sim_tensor *t = &r->tensors[step->name];
    switch (step->what) {
    case SIM_SUBMIT:
        for (uint32_t i = 0; i < (step->group ? step->group : 1); i++)
            submit(r, &r->steps[r->at++]);
        break;
    case SIM_WAIT:
        if (t->state == SIM_UNDER_WAY) {
            negotiate_prioritize(r->n, t->id, true, s->now);
            if (!waits_in_vain(r))
                return false;
            r->at = r->nsteps - 1; /* the program fails, and leaves, too */
            break;
        }
        r->at++;
        break;
    case SIM_LEAVE:
        return leave_step(r);
    case SIM_PRIORITIZE:
        if (t->state == SIM_UNDER_WAY)
            negotiate_prioritize(r->n, t->id, true, s->now);
        r->at++;
        break;
    case SIM_JOIN:
        return join_step(r);
    case SIM_SLEEP:
        r->awake = s->now + step->ns;
        r->at++;
        break;
    }
    s->progress++;
    return true;
}

static bool deliver(struct sim *s, int from, int to)
{
    struct sim_message *m = s->queue[from][to];
    if (!m || s->ranks[to].deaf)
        return false;
    s->queue[from][to] = m->next;
    if (!m->next)
        s->queue_end[from][to] = &s->queue[from][to];
    struct sim_rank *r = &s->ranks[to];
    struct err err = {0};
    int as = from == r->config.parent ? NEGOTIATE_PARENT : from;
    if (negotiate_recv(r->n, as, m->data, m->len, s->now, &err) < 0)
        sim_fail(s, "rank %d: %s", to, err.msg);
    free(m);
    return true;
}

void sim_step_once(struct sim *s)
{
    struct sim_rank *r = &s->ranks[sim_random(s, (uint64_t)s->n)];
    s->now += sim_random(s, 2000);
    if (r->deaf)
        return;
    switch (sim_random(s, 5)) {
    case 0:
        deliver(s, (int)sim_random(s, (uint64_t)s->n), r->rank);
        break;
    case 1:
        program_step(r);
        break;
    case 2:
        r->due = negotiate_tick(r->n, s->now);
        break;
    case 3:
        start_batch(r);
        break;
    case 4:
        end_batch(r, sim_random(s, 2) ? SIM_BOUND : SIM_HOST);
        break;
    }
}

/* Every rank does all it can, in order. Returns true when anything was done. */
static bool settle(struct sim *s)
{
    uint64_t before = s->progress, messages = s->messages;
    bool did = false;
    for (int i = 0; i < s->n; i++) {
        struct sim_rank *r = &s->ranks[i];
        if (r->deaf)
            continue;
        for (int from = 0; from < s->n; from++)
            while (!s->why[0] && deliver(s, from, i))
                did = true;
        while (!s->why[0] && program_step(r))
            did = true;
        r->due = negotiate_tick(r->n, s->now);
        did = start_batch(r) || did;
        for (int kind = 0; kind < SIM_LANES; kind++)
            did = end_batch(r, kind) || did;
    }
    return did || before != s->progress || messages != s->messages;
}

static bool finished(const struct sim *s)
{
    if (s->aborted)
        return true;
    for (int i = 0; i < s->n; i++) {
        const struct sim_rank *r = &s->ranks[i];
        if (!r->lost[0] && (r->at < r->nsteps || has_batches(r)))
            return false;
    }
    return true;
}

/* Advances the clock to the next event. Returns false if none will come. */
static bool sleep_on(struct sim *s)
{
    uint64_t next = UINT64_MAX;
    for (int i = 0; i < s->n; i++) {
        const struct sim_rank *r = &s->ranks[i];
        if (r->due > s->now && r->due < next)
            next = r->due;
        if (r->at < r->nsteps && r->awake > s->now && r->awake < next)
            next = r->awake;
    }
    if (next == UINT64_MAX)
        return false;
    s->now = next;
    return true;
}

bool sim_run(struct sim *s)
{
    uint64_t quiet = 0;
    while (!s->why[0] && !finished(s)) {
        for (int i = 0; i < 40 * s->n && !s->why[0]; i++)
            sim_step_once(s);
        if (sim_random(s, 8) != 0 || settle(s) || finished(s)) {
            quiet = 0;
            continue;
        }
        if (!sleep_on(s) || ++quiet > 2000) {
            for (int i = 0; i < s->n; i++)
                if (s->ranks[i].at < s->ranks[i].nsteps)
                    sim_fail(s, "deadlock: rank %d at step %zu of %zu (t%d) frozen %d", i,
                             s->ranks[i].at, s->ranks[i].nsteps,
                             s->ranks[i].steps[s->ranks[i].at].name,
                             negotiate_frozen(s->ranks[i].n));
            sim_fail(s, "deadlock: the programs are at their end, batches are not");
        }
    }
    for (int i = 0; i < s->n && !s->why[0] && !s->ranks[i].lost[0] && !s->aborted; i++)
        for (int k = 0; k < SIM_NAMES; k++) {
            const struct sim_tensor *t = &s->ranks[i].tensors[k], *t0 = &s->ranks[0].tensors[k];
            if ((t->submitted != t->ran + t->failed && !s->left) || t->ran != t0->ran)
                sim_fail(s, "rank %d: t%d submitted %llu, ran %llu, failed %llu", i, k,
                         (unsigned long long)t->submitted, (unsigned long long)t->ran,
                         (unsigned long long)t->failed);
        }
    return !s->why[0];
}

/* ---- life ---------------------------------------------------------------------------------- */

struct sim_step *sim_add(struct sim_rank *r, const struct sim_step *step)
{
    if (r->nsteps == r->cap) {
        r->cap = r->cap ? 2 * r->cap : 64;
        r->steps = realloc(r->steps, r->cap * sizeof(*r->steps));
    }
    r->steps[r->nsteps] = *step;
    return &r->steps[r->nsteps++];
}

void sim_submit(struct sim_rank *r, int name, const struct signature *sig, uint64_t version)
{
    sim_add(r,
            &(struct sim_step){.what = SIM_SUBMIT, .name = name, .sig = *sig, .version = version});
}

void sim_wait(struct sim_rank *r, int name)
{
    sim_add(r, &(struct sim_step){.what = SIM_WAIT, .name = name});
}

void sim_sleep(struct sim_rank *r, uint64_t ns)
{
    sim_add(r, &(struct sim_step){.what = SIM_SLEEP, .ns = ns});
}

/* A flat tree (0), a binary tree (1), or groups of `fan` ranks whose first rank is the parent of
 * the others. */
static int parent_of(int rank, int fan)
{
    if (rank == 0)
        return -1;
    if (fan == 1)
        return (rank - 1) / 2;
    return fan > 1 && rank % fan != 0 ? rank - rank % fan : 0;
}

void sim_init(struct sim *s, uint64_t seed, const struct sim_options *o)
{
    memset(s, 0, sizeof(*s));
    s->seed = seed;
    s->rng = (seed + 1) * 0x9e3779b97f4a7c15ULL | 1;
    s->n = o->n;
    s->now = 1000000;
    for (int i = 0; i < o->n; i++) {
        struct sim_rank *r = &s->ranks[i];
        *r = (struct sim_rank){.sim = s, .rank = i, .eager = sim_random(s, 2), .due = UINT64_MAX};
        r->dropped = UINT64_MAX;
        for (int k = 0; k < SIM_LANES; k++)
            r->lanes[k].end = &r->lanes[k].first;
        r->config = (struct negotiate_config){
            .rank = i,
            .size = o->n,
            .parent = parent_of(i, o->fan),
            .children = r->children,
            .fusion_bytes = o->fusion_bytes,
            .cycle_ns = o->cycle_ns,
            .cache_capacity = o->cache_capacity,
            .freeze_after = o->freeze_after,
            .thaws_max = o->thaws_max,
            .stall_ns = o->stall_ns,
            .stall_shutdown_ns = o->stall_shutdown_ns,
        };
        for (int k = 1; k < o->n; k++)
            if (parent_of(k, o->fan) == i)
                r->children[r->config.nchildren++] = k;
        for (int k = 0; k < o->n; k++)
            s->queue_end[i][k] = &s->queue[i][k];
        struct err err = {0};
        if (negotiate_create(&r->config, &sim_ops, r, &r->n, &err) < 0)
            sim_fail(s, "%s", err.msg);
    }
}

void sim_fini(struct sim *s)
{
    for (int i = 0; i < s->n; i++) {
        struct sim_rank *r = &s->ranks[i];
        negotiate_destroy(r->n);
        free(r->steps);
        for (int k = 0; k < SIM_LANES; k++)
            for (struct sim_batch *b = r->lanes[k].first, *next; b; b = next) {
                next = b->next;
                free(b);
            }
        for (int k = 0; k < s->n; k++)
            for (struct sim_message *m = s->queue[i][k], *next; m; m = next) {
                next = m->next;
                free(m);
            }
    }
    for (int k = 0; k < SIM_LANES; k++) {
        for (size_t i = 0; i < s->logs[k].n; i++)
            free(s->logs[k].texts[i]);
        free(s->logs[k].texts);
        free(s->logs[k].started);
    }
}
