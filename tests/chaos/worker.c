/* SPDX-License-Identifier: Apache-2.0
 *
 * worker DIR [--seed N] [--every K] [--max-bytes B] [--pace MS] [--sets 0|1]
 *        [--only KIND:DTYPE:in|out:COUNT:LENGTH]: a rank of the chaos run. Steps of many operations
 * (plan.h) with values that tell who contributed (codes.h), hvd_commit() each K steps, until the
 * file DIR/stop is there. What returned is written to DIR/UID.jsonl (record.h) and then overwritten
 * at once, inputs and outputs. Only hvd.h and the shared library.
 *
 * With --sets 1 every other burst is one of a set of all ranks: the same results are right as in
 * the world, and losses and boundaries concern both. All ranks make the set anew when ranks have
 * joined.
 *
 * A file DIR/inject/PHASE.NUMBER arms the first worker that starts and finds it:
 * HVD_TEST_FAIL=PHASE makes it end itself in that phase of a repair. A file DIR/doom makes the
 * first worker that finds it end itself while its next operations are in flight, because a kill
 * from outside mostly hits a rank that checks its results.
 *
 * Exit codes: 0 the end, or it was asked to leave; 2 wrong arguments; 3 a call of hvd.h failed (the
 * reason is in the record); 4 no rank has the state; 6 the record cannot be written.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hvd.h>

#include "core/base/hash.h"
#include "tests/chaos/codes.h"
#include "tests/chaos/ends.h"
#include "tests/chaos/plan.h"
#include "tests/chaos/record.h"
#include "tests/chaos/ring.h"

#define START_US 300000 /* between hvd_init() and hvd_enter(), at most */

/* What a joiner needs to continue. */
struct state {
    uint64_t step; /* the next one */
    uint64_t hash; /* of all results so far: the same on every rank */
    uint64_t stop;
    uint64_t set; /* of all ranks; 0: there is none */
};

struct worker {
    const char *dir;
    uint64_t seed, every, pace_ms;
    int64_t max_bytes;
    struct plan_op only; /* with only_length: every step consists of so many of these */
    int only_length;
    bool sets;
    struct record record;
    struct hvd_world world;
    struct state state;
    bool has_state;
    uint64_t random; /* of this rank alone: the order in which it submits and waits */
};

/* An operation in flight, and its memory. */
struct slot {
    char *input, *output; /* NULL if it has none; equal if in place */
    size_t bytes;
    void *base[2];
    int64_t shape[2];
    hvd_handle handle;
};

static int fail(struct worker *w, const char *what, int rc)
{
    return record_fail(&w->record, w->state.step, what, rc);
}

/* ---- one operation ---- */

static int slot_open(struct slot *s, const struct plan_op *op, int rank)
{
    int64_t rows = op->kind == HVD_ALLGATHER ? codes_rows(rank, op->salt) : 1;
    s->bytes = (size_t)(rows * op->count) * hvd_dtype_size(op->dtype);
    for (int i = 0; i < (op->in_place ? 1 : 2); i++) {
        s->base[i] = malloc(s->bytes + (size_t)op->shift + 1);
        if (!s->base[i])
            return -ENOMEM;
    }
    s->input = (char *)s->base[0] + op->shift;
    s->output = op->in_place ? s->input : (char *)s->base[1] + op->shift;
    if (op->kind == HVD_ALLGATHER) {
        s->shape[0] = rows;
        s->shape[1] = op->count;
        codes_fill_rows(s->input, op->count, rank, op->salt);
        s->output = NULL; /* the engine allocates it */
    } else {
        s->shape[0] = op->count;
    }
    return 0;
}

static void slot_close(struct slot *s)
{
    free(s->base[0]);
    free(s->base[1]);
    *s = (struct slot){0};
}

static int root_of(const struct worker *w, const struct plan *p, int index)
{
    return (int)((p->step + (uint64_t)index) % (uint64_t)w->world.size);
}

static void fill(const struct worker *w, const struct plan *p, int index, struct slot *s)
{
    const struct plan_op *op = &p->ops[index];
    int root = root_of(w, p, index);
    if (op->kind == HVD_ALLREDUCE)
        codes_fill(s->input, op->dtype, op->op, op->count, w->world.rank, op->salt);
    else if (op->kind == HVD_BROADCAST && w->world.rank == root)
        codes_fill(s->input, op->dtype, HVD_SUM, op->count, root, op->salt);
    else if (op->kind == HVD_BROADCAST)
        memset(s->input, 0x33, s->bytes);
}

static struct hvd_request request_of(const struct worker *w, const struct plan *p, int index,
                                     const struct slot *s)
{
    const struct plan_op *op = &p->ops[index];
    return (struct hvd_request){.kind = op->kind,
                                .name = op->name,
                                .input = s->input,
                                .output = s->output,
                                .dtype = op->dtype,
                                .ndim = op->kind == HVD_ALLGATHER ? 2 : 1,
                                .shape = s->shape,
                                .op = op->op,
                                .root = root_of(w, p, index),
                                .set = op->burst % 2 ? (int)w->state.set : 0,
                                .device = -1};
}

/* A broadcast's elements name its root. */
static void verify(const struct worker *w, const struct plan *p, int index, const struct slot *s,
                   struct codes_verdict *v)
{
    const struct plan_op *op = &p->ops[index];
    struct hvd_result result;
    if (op->kind == HVD_ALLGATHER && hvd_result(s->handle, &result) == 0)
        codes_verify_rows(result.data, result.shape[0], op->count, w->world.size, op->salt, v);
    else if (op->kind == HVD_ALLREDUCE || op->kind == HVD_BROADCAST)
        codes_verify(s->output, op->dtype, op->op, op->count, w->world.size, op->salt, v);
}

/* The operation has returned rc: its memory is the user's again. */
static int take(struct worker *w, const struct plan *p, int index, struct slot *s, int rc,
                uint64_t *ret_hash)
{
    const struct plan_op *op = &p->ops[index];
    struct codes_verdict v = {.first_bad = -1};
    if (s->output != s->input)
        memset(s->input, 0xa5, s->bytes);
    if (rc == 0)
        verify(w, p, index, s, &v);
    bool lost_root = op->kind == HVD_BROADCAST && rc == -EOWNERDEAD;
    *ret_hash = lost_root ? 1 : v.hash;
    record_op(&w->record, w->world.epoch, p, index, rc, &v);
    if (s->output)
        memset(s->output, 0x5a, s->bytes);
    if (op->kind == HVD_ALLGATHER && s->handle)
        hvd_release(s->handle);
    return rc == 0 || lost_root ? 0 : fail(w, op->name, rc);
}

/* ---- bursts ---- */

/* 0 to n - 1 in a random order of this rank. */
static void shuffle(struct worker *w, int *order, int n)
{
    for (int i = 0; i < n; i++) {
        int j = (int)(plan_random(&w->random) % (uint64_t)(i + 1));
        order[i] = i;
        order[i] = order[j];
        order[j] = i;
    }
}

static int call_one(const struct plan_op *op, const struct hvd_request *r, struct slot *s)
{
    if (r->set == 0 && op->kind == HVD_ALLREDUCE)
        return hvd_allreduce(r->name, r->input, r->output, op->count, r->dtype, r->op);
    if (r->set == 0 && op->kind == HVD_BROADCAST)
        return hvd_broadcast(r->name, r->output, op->count, r->dtype, r->root);
    if (r->set == 0 && op->kind == HVD_BARRIER)
        return hvd_barrier(r->name);
    int rc = hvd_submit(r, 1, &s->handle);
    return rc < 0 ? rc : hvd_wait(s->handle);
}

static int submit_all(struct worker *w, const struct plan *p, int first, int n, struct slot *slots)
{
    struct hvd_request requests[PLAN_MAX_OPS];
    hvd_handle handles[PLAN_MAX_OPS];
    int order[PLAN_MAX_OPS], rc = 0;
    for (int i = 0; i < n; i++)
        requests[i] = request_of(w, p, first + i, &slots[i]);
    if (p->ops[first].mode == PLAN_GROUP) {
        rc = hvd_submit(requests, (size_t)n, handles);
        for (int i = 0; i < n && rc == 0; i++)
            slots[i].handle = handles[i];
        return rc;
    }
    shuffle(w, order, n);
    for (int i = 0; i < n && rc == 0; i++)
        rc = hvd_submit(&requests[order[i]], 1, &slots[order[i]].handle);
    return rc;
}

/* Operations first to first + n - 1. hashes: of their results, by number. */
static int run_burst(struct worker *w, const struct plan *p, int first, int n, uint64_t *hashes)
{
    struct slot slots[PLAN_MAX_OPS] = {0};
    int order[PLAN_MAX_OPS], rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = slot_open(&slots[i], &p->ops[first + i], w->world.rank);
        if (rc == 0)
            fill(w, p, first + i, &slots[i]);
    }
    ends_doom(&w->record, w->dir, &w->random, p->step, first);
    if (rc == 0 && p->ops[first].mode == PLAN_CALL) {
        struct hvd_request r = request_of(w, p, first, &slots[0]);
        rc = take(w, p, first, &slots[0], call_one(&p->ops[first], &r, &slots[0]), &hashes[first]);
    } else if (rc == 0) {
        rc = submit_all(w, p, first, n, slots);
        if (rc < 0)
            rc = fail(w, "hvd_submit", rc);
        shuffle(w, order, n);
        for (int i = 0; i < n && rc == 0; i++) {
            struct slot *s = &slots[order[i]];
            rc = take(w, p, first + order[i], s, hvd_wait(s->handle), &hashes[first + order[i]]);
        }
    }
    /* The engine may still use the memory of an operation that failed here, so it is not freed
     * then. */
    for (int i = 0; i < n && rc == 0; i++)
        slot_close(&slots[i]);
    return rc;
}

/* ---- steps ---- */

/* Asks whether to stop. Every rank gets the same answer, even if a rank that has seen the file
 * dies. */
static int ask_stop(struct worker *w)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/stop", w->dir);
    uint8_t stop = access(path, F_OK) == 0;
    int rc = hvd_allreduce("stop", &stop, &stop, 1, HVD_UINT8, HVD_MAX);
    if (rc < 0)
        return fail(w, "stop", rc);
    record_line(&w->record, "stop", "\"step\": %" PRIu64 ", \"stop\": %d", w->state.step, stop);
    w->state.stop = stop;
    return 0;
}

static int run_step(struct worker *w)
{
    struct plan p;
    uint64_t hashes[PLAN_MAX_OPS] = {0};
    if (w->only_length)
        plan_only(&p, &w->only, w->only_length, w->seed, w->state.step);
    else
        plan_step(&p, w->seed, w->state.step, w->max_bytes);
    record_line(&w->record, "step", "\"step\": %" PRIu64 ", \"ops\": %d", p.step, p.nops);
    int passed = ring_pass(p.step, w->world.rank, w->world.size);
    if (passed < 0)
        return fail(w, "a message", passed);
    for (int first = 0, n; first < p.nops; first += n) {
        for (n = 1; first + n < p.nops && p.ops[first + n].burst == p.ops[first].burst;)
            n++;
        int rc = run_burst(w, &p, first, n, hashes);
        if (rc != 0)
            return rc;
    }
    for (int i = 0; i < p.nops; i++)
        w->state.hash = hash_mix(w->state.hash ^ hashes[i]);
    int rc = ask_stop(w);
    w->state.step++;
    if (w->pace_ms)
        usleep((useconds_t)w->pace_ms * 1000);
    return rc;
}

static int look_at_world(struct worker *w, int rc)
{
    w->world.size_of_struct = sizeof(w->world);
    if (hvd_world(&w->world) < 0)
        return fail(w, "hvd_world", -1);
    const struct hvd_world *s = &w->world;
    record_line(&w->record, "world",
                "\"step\": %" PRIu64 ", \"rc\": %d, \"e\": %" PRIu32
                ", \"rank\": %d, \"size\": %d, \"source\": %d, \"joined\": %d, \"left\": %d, "
                "\"new\": %d, \"repair_ns\": %" PRIu64 ", \"state\": \"%016" PRIx64 "\"",
                w->state.step, rc, s->epoch, s->rank, s->size, s->source, s->joined, s->left,
                s->is_new, s->repair_ns, w->has_state ? w->state.hash : 0);
    if (s->size > CODES_MAX_RANKS)
        return fail(w, "more ranks than the values can tell apart", -ERANGE);
    return 0;
}

/* A rank without the state gets it from world.source. If that one dies before the state is
 * complete, it comes from the lowest rank that has it. */
static int share_state(struct worker *w)
{
    int32_t root = w->world.source;
    for (int tries = 0; tries < CODES_MAX_RANKS; tries++) {
        struct state state = w->state;
        int rc = hvd_broadcast("state", &state, sizeof(state), HVD_UINT8, root);
        if (rc == 0) {
            w->state = state;
            w->has_state = true;
            record_line(&w->record, "state",
                        "\"step\": %" PRIu64 ", \"root\": %d, \"state\": \"%016" PRIx64 "\"",
                        w->state.step, root, w->state.hash);
            return 0;
        }
        if (rc != -EOWNERDEAD)
            return fail(w, "state", rc);
        root = w->has_state ? w->world.rank : INT32_MAX;
        rc = hvd_allreduce("state.source", &root, &root, 1, HVD_INT32, HVD_MIN);
        if (rc < 0)
            return fail(w, "state.source", rc);
        if (root == INT32_MAX)
            break;
    }
    fail(w, "nobody has the state", -ENODATA);
    return 4;
}

/* All ranks make a set of all ranks, instead of the one that there was. A rank that is lost since
 * the boundary ends that on all of them: then there is none until the next change. */
static int renew_set(struct worker *w)
{
    int all[CODES_MAX_RANKS], set = 0, rc = 0;
    if (!w->sets)
        return 0;
    if (w->state.set && (rc = hvd_set_remove((int)w->state.set)) < 0)
        return fail(w, "hvd_set_remove", rc);
    for (int i = 0; i < w->world.size; i++)
        all[i] = i;
    rc = hvd_set_add(all, w->world.size, &set);
    if (rc < 0 && rc != -EOWNERDEAD)
        return fail(w, "hvd_set_add", rc);
    w->state.set = (uint64_t)set;
    return 0;
}

/* *ret_over: the run has ended for this rank. -ESHUTDOWN: it was asked to leave. */
static int boundary(struct worker *w, bool *ret_over)
{
    int rc = hvd_commit();
    if (rc == -ESHUTDOWN)
        return rc;
    if (rc < 0)
        return fail(w, "hvd_commit", rc);
    bool changed = rc == 1;
    rc = look_at_world(w, rc);
    if (rc == 0 && changed && w->world.joined > 0)
        rc = share_state(w);
    if (rc == 0 && changed && (w->world.joined > 0 || w->state.set == 0))
        rc = renew_set(w);
    *ret_over = w->state.stop;
    return rc;
}

/* A program's work before it needs other ranks takes a while. Training ranks must not notice it,
 * whatever happens meanwhile. */
static int start_up(struct worker *w)
{
    int rc = hvd_init();
    if (rc < 0)
        return rc == -ESHUTDOWN ? rc : fail(w, "hvd_init", rc);
    record_line(&w->record, "hello", "\"rank\": %d", hvd_rank());
    usleep((useconds_t)(plan_random(&w->random) % START_US));
    rc = hvd_enter();
    return rc == 0 || rc == -ESHUTDOWN ? rc : fail(w, "hvd_enter", rc);
}

static int work_on(struct worker *w)
{
    int rc = start_up(w);
    signal(SIGTERM, SIG_DFL);
    if (rc != 0)
        return rc;
    rc = look_at_world(w, 0);
    bool over = false;
    if (rc == 0 && w->world.is_new) {
        rc = share_state(w);
        over = w->state.stop;
    }
    if (rc == 0)
        rc = renew_set(w);
    w->has_state = true;
    while (rc == 0 && !over) {
        rc = run_step(w);
        if (rc == 0 && (w->state.step % w->every == 0 || w->state.stop))
            rc = boundary(w, &over);
    }
    return rc;
}

static int work(struct worker *w)
{
    int rc = work_on(w);
    if (rc == -ESHUTDOWN)
        record_line(&w->record, "left", "\"step\": %" PRIu64, w->state.step);
    else if (rc == 0)
        record_line(&w->record, "end", "\"step\": %" PRIu64 ", \"state\": \"%016" PRIx64 "\"",
                    w->state.step, w->state.hash);
    else
        return rc;
    if (!hvd_initialized())
        return 0; /* it was asked to leave before admission */
    rc = hvd_shutdown();
    return rc < 0 ? fail(w, "hvd_shutdown", rc) : 0;
}

/* ---- beginning ---- */

static int parse(struct worker *w, int argc, char **argv)
{
    *w = (struct worker){.seed = 1, .every = 3, .max_bytes = 16 << 20};
    if (argc < 2 || argc % 2 != 0)
        return -EINVAL;
    w->dir = argv[1];
    for (int i = 2; i < argc; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--seed") == 0)
            w->seed = value;
        else if (strcmp(argv[i], "--every") == 0 && value > 0)
            w->every = value;
        else if (strcmp(argv[i], "--max-bytes") == 0 && value >= 64)
            w->max_bytes = (int64_t)value;
        else if (strcmp(argv[i], "--pace") == 0)
            w->pace_ms = value;
        else if (strcmp(argv[i], "--sets") == 0)
            w->sets = value;
        else if (strcmp(argv[i], "--only") != 0 ||
                 plan_parse_only(argv[i + 1], &w->only, &w->only_length) < 0)
            return -EINVAL;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct worker w;
    if (parse(&w, argc, argv) < 0) {
        fprintf(stderr, "usage: worker DIR [--seed N] [--every K] [--max-bytes B] [--pace MS] "
                        "[--sets 0|1] [--only KIND:DTYPE:in|out:COUNT:LENGTH]\n");
        return 2;
    }
    ends_arm(w.dir, argv);
    int rc = record_open(&w.record, w.dir);
    if (rc < 0) {
        fprintf(stderr, "worker: %s: %s\n", w.dir, strerror(-rc));
        return 6;
    }
    const char *armed = getenv("HVD_TEST_FAIL");
    w.random = hash_mix((uint64_t)getpid() ^ w.seed);
    record_line(&w.record, "start",
                "\"uid\": \"%s\", \"pid\": %d, \"seed\": %" PRIu64 ", \"armed\": \"%s\"",
                w.record.uid, (int)getpid(), w.seed, armed ? armed : "");
    ends_note_early(&w.record);
    rc = work(&w);
    record_close(&w.record);
    return rc;
}
