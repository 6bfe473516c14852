/* SPDX-License-Identifier: Apache-2.0
 *
 * run: executes the calls of a group on the thread of their stream: first all sends and receives,
 * at the same time, then the collectives in order, chunk by chunk through cells that all ranks see.
 * Ranks that call different collectives wait for ever, as in the real library. See fake.h.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/hash.h"
#include "tests/fake/nccl/fake.h"

static size_t bytes_of(const struct task *t)
{
    return t->count * type_size(t->type);
}

/* ---- send and receive ---- */

/* As NCCL's kernels do, an aborted rank waits for no other any more and moves no data, but still
 * tells the others that it has come: they go on with data that is not there. */
static bool is_aborted(const struct ncclComm *c)
{
    return atomic_load(&c->aborted) && script_number("FAKE_NCCL_RUNS_ON", 1);
}

static bool is_letter(const struct task *t)
{
    return t->kind == SEND || t->kind == RECV;
}

/* Messages between two ranks are sent one after the other. */
static bool has_turn(const struct task *list, const struct task *t)
{
    for (const struct task *u = list; u != t; u = u->next) {
        if (u->kind == t->kind && u->peer == t->peer && u->at < bytes_of(u))
            return false;
    }
    return true;
}

static size_t chunk_of(const struct task *t)
{
    size_t left = bytes_of(t) - t->at;
    return left < LETTER_BYTES ? left : LETTER_BYTES;
}

static bool send_some(struct task *t)
{
    struct letter *l = &t->comm->segment->letter[t->comm->rank][t->peer];
    uint64_t sent = atomic_load(&l->sent);
    if (sent != atomic_load(&l->taken))
        return false;
    size_t n = chunk_of(t);
    l->bytes = bytes_of(t);
    if (!is_aborted(t->comm))
        memcpy(l->data, t->in + t->at, n);
    t->at += n;
    atomic_store(&l->sent, sent + 1);
    return true;
}

static bool receive_some(struct task *t)
{
    struct letter *l = &t->comm->segment->letter[t->peer][t->comm->rank];
    uint64_t taken = atomic_load(&l->taken);
    if (atomic_load(&l->sent) == taken)
        return false;
    if (l->bytes != bytes_of(t)) {
        comm_hang(t->comm);
        return false;
    }
    size_t n = chunk_of(t);
    if (!is_aborted(t->comm))
        memcpy(t->out + t->at, l->data, n);
    t->at += n;
    atomic_store(&l->taken, taken + 1);
    return true;
}

/* How long an aborted rank counts steps that it does not make. */
#define RUNS_ON_MS 2000

static bool run_letters(struct task *list)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    unsigned tries = 0, naps = 0;
    for (;;) {
        bool left = false, moved = false;
        bool stands = atomic_load(&list->comm->aborted) && !is_aborted(list->comm);
        for (struct task *t = list; t; t = t->next) {
            if (!is_letter(t) || t->at >= bytes_of(t))
                continue;
            left = true;
            if (!stands && has_turn(list, t) && (t->kind == SEND ? send_some(t) : receive_some(t)))
                moved = true;
        }
        if (!left)
            return true;
        if (moved)
            tries = naps = 0;
        else if (!comm_pause(list->comm, &tries))
            continue;
        else if (!is_aborted(list->comm) || ++naps == RUNS_ON_MS)
            return false;
        else
            nanosleep(&nap, NULL);
    }
}

/* ---- collectives ---- */

static uint64_t signature(const struct task *t)
{
    int op = t->op >= NCCL_ABI_OPS ? NCCL_ABI_OPS : t->op;
    const uint64_t words[] = {(uint64_t)t->kind, t->count, (uint64_t)t->type, (uint64_t)op,
                              (uint64_t)t->peer};
    return hash_bytes(words, sizeof(words));
}

static bool meet(struct ncclComm *c)
{
    return comm_barrier(c) || is_aborted(c);
}

static bool all_agree(const struct task *t)
{
    struct ncclComm *c = t->comm;
    uint64_t mine = signature(t);
    atomic_store(&c->segment->seat[c->rank].what, mine);
    if (!meet(c))
        return false;
    bool same = true;
    for (int r = 0; r < c->size; r++)
        same = same && atomic_load(&c->segment->seat[r].what) == mine;
    if (!same)
        comm_hang(c);
    return (same || is_aborted(c)) && meet(c);
}

/* One exchange of n elements from every rank's in: out gets the sum (reduce), or rank r's
 * elements go to out + r * stride bytes (gather). out NULL: only the other ranks need it. */
struct exchange {
    const uint8_t *in;
    uint8_t *out;
    size_t n, stride;
    int from; /* the only rank that contributes; -1: all */
    bool reduces;
};

static bool exchange(const struct task *t, const struct exchange *x)
{
    struct ncclComm *c = t->comm;
    const uint8_t *cells[RANKS_MAX];
    size_t size = type_size(t->type);
    bool gives = x->from < 0 || x->from == c->rank;
    if (gives && !is_aborted(c))
        memcpy(c->segment->cell[c->rank], x->in, x->n * size);
    if (!meet(c))
        return false;
    if (is_aborted(c))
        return meet(c);
    for (int r = 0; r < c->size; r++)
        cells[r] = c->segment->cell[r];
    if (x->out && x->reduces)
        math_reduce(x->out, cells, c->size, x->n, t->type, t->op, t->scalar);
    for (int r = 0; x->out && !x->reduces && r < c->size; r++) {
        if (x->from < 0 || x->from == r)
            memcpy(x->out + (x->from < 0 ? (size_t)r * x->stride : 0), cells[r], x->n * size);
    }
    return meet(c);
}

/* Exchanges elements [from, from + n) of in, chunk by chunk; out begins with the first of them. */
static bool exchange_all(const struct task *t, size_t from, size_t n, struct exchange x)
{
    size_t size = type_size(t->type), most = CELL_BYTES / size;
    const uint8_t *in = x.in;
    uint8_t *out = x.out;
    for (size_t at = 0; at < n; at += most) {
        x.n = n - at < most ? n - at : most;
        x.in = in ? in + (from + at) * size : NULL;
        x.out = out ? out + at * size : NULL;
        if (!exchange(t, &x))
            return false;
    }
    return true;
}

static bool run_collective(const struct task *t)
{
    struct ncclComm *c = t->comm;
    struct exchange x = {.in = t->in, .out = t->out, .from = -1, .reduces = true};
    if (!all_agree(t))
        return false;
    switch (t->kind) {
    case REDUCE:
        x.out = t->peer == c->rank ? t->out : NULL;
        return exchange_all(t, 0, t->count, x);
    case BROADCAST:
        x.reduces = false;
        x.from = t->peer;
        return exchange_all(t, 0, t->count, x);
    case ALL_GATHER:
        x.reduces = false;
        x.stride = bytes_of(t);
        return exchange_all(t, 0, t->count, x);
    case REDUCE_SCATTER:
        for (int r = 0; r < c->size; r++) {
            x.out = r == c->rank ? t->out : NULL;
            if (!exchange_all(t, (size_t)r * t->count, t->count, x))
                return false;
        }
        return true;
    default:
        return exchange_all(t, 0, t->count, x);
    }
}

/* ---- a list ---- */

void run_in_turn(struct task *list)
{
    struct ncclComm *c = list->comm;
    for (struct task *t = list; t; t = t->next) {
        if (t->fails)
            atomic_store(&c->async, t->fails);
        if (t->fails || t->hangs)
            comm_hang(c);
    }
    bool ok = run_letters(list);
    for (struct task *t = list; t && ok; t = t->next)
        ok = is_letter(t) || run_collective(t);
}

void leave_list(struct task *list)
{
    struct ncclComm *c = list->comm;
    task_free(list);
    atomic_fetch_add(&c->run, 1);
}

static void come_to(struct task *list, bool works)
{
    struct ncclComm *c = list->comm;
    const struct timespec nap = {.tv_nsec = 50000};
    while (atomic_load(&c->run) != list->number)
        nanosleep(&nap, NULL);
    if (works && (!atomic_load(&c->aborted) || is_aborted(c)))
        run_in_turn(list);
    leave_list(list);
}

void run_tasks(void *list)
{
    come_to(list, true);
}

void skip_tasks(void *list)
{
    come_to(list, false);
}

void task_free(struct task *list)
{
    for (struct task *next; list; list = next) {
        next = list->next;
        free(list);
    }
}
