/* SPDX-License-Identifier: Apache-2.0
 *
 * rounds: see rounds.h.
 */
#include "core/negotiate/rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
    return x ^ x >> 31;
}

void rounds_init(struct rounds *r)
{
    memset(r, 0, sizeof(*r));
    r->serial = 1;
    r->best = 1;
}

void rounds_fini(struct rounds *r)
{
    free(r->log);
    r->log = NULL;
}

void rounds_reset(struct rounds *r)
{
    struct log_entry *log = r->log;
    uint64_t serial = r->serial;
    rounds_init(r);
    r->log = log;
    r->serial = serial + 1;
}

/* The round q before the current one (q >= 1), NULL when it is not remembered. */
static const struct round *before(const struct rounds *r, uint64_t q)
{
    if (q > r->nkept || q > ROUNDS_KEPT)
        return NULL;
    return &r->kept[(r->nkept - q) % ROUNDS_KEPT];
}

static bool alike(const struct rounds *r, uint64_t q)
{
    const struct round *other = before(r, q);
    return other && other->hash == r->cur.hash && other->count == r->cur.count;
}

static void close_round(struct rounds *r)
{
    r->best = 1;
    for (int q = 1; q <= ROUNDS_PERIOD; q++) {
        r->run[q] = alike(r, (uint64_t)q) ? r->run[q] + 1 : 0;
        if (r->run[q] > r->run[r->best])
            r->best = q;
    }
    r->kept[r->nkept++ % ROUNDS_KEPT] = r->cur;
    r->cur = (struct round){0};
    r->serial++;
}

/* An id's contribution to a hash. Without an id it is unique, so that it equals no other. */
static uint64_t share(const struct rounds *r, uint64_t id)
{
    return mix(id ? id : r->serial << 24 | r->nlog << 8 | r->cur.count);
}

void rounds_arrive(struct rounds *r, uint64_t id, uint64_t *seen)
{
    if (r->cur.count && (*seen == r->serial || r->cur.count >= ROUNDS_LOG))
        close_round(r);
    *seen = r->serial;
    r->cur.count++;
    r->cur.hash += share(r, id);
}

int rounds_log(struct rounds *r, const struct log_entry *entry)
{
    if (!r->log) {
        r->log = calloc(ROUNDS_LOG, sizeof(*r->log));
        if (!r->log)
            return -ENOMEM;
    }
    uint64_t sum = r->nlog ? rounds_at(r, r->nlog - 1)->sum : 0;
    struct log_entry *place = &r->log[r->nlog & (ROUNDS_LOG - 1)];
    *place = *entry;
    place->sum = sum + share(r, entry->id);
    r->nlog++;
    return 0;
}

bool rounds_complete(const struct rounds *r)
{
    return r->cur.count && alike(r, (uint64_t)r->best);
}

/* Computes the hash of the `count` tensors of the log before its last `skip` tensors. false: the
 * log does not hold that many. */
static bool window(const struct rounds *r, uint64_t skip, uint64_t count, uint64_t *ret_hash)
{
    uint64_t end = r->nlog - skip;
    if (skip + count > r->nlog || skip + count >= ROUNDS_LOG)
        return false;
    uint64_t before_it = end == count ? 0 : rounds_at(r, end - count - 1)->sum;
    *ret_hash = rounds_at(r, end - 1)->sum - before_it;
    return true;
}

/* The last q rounds as one, including the current one (from 0) or not (from 1). */
static struct round joined(const struct rounds *r, uint32_t q, uint32_t from)
{
    struct round all = from ? (struct round){0} : r->cur;
    for (uint32_t k = 1; k < q + from; k++) {
        all.hash += before(r, k)->hash;
        all.count += before(r, k)->count;
    }
    return all;
}

uint32_t rounds_period(const struct rounds *r, uint32_t times)
{
    if (times == 0)
        return 0;
    for (uint32_t q = 1; q <= ROUNDS_PERIOD && q <= r->nkept; q++) {
        uint64_t need = (uint64_t)(times - 1) * q, hash, former;
        if (alike(r, q) && (uint64_t)r->run[q] + 1 >= need) {
            struct round all = joined(r, q, 0);
            if (window(r, 0, all.count, &hash) && hash == all.hash)
                return all.count;
        }
        /* rounds may be cut in the middle of the program's own steps */
        if (r->run[q] >= q && r->run[q] >= need) {
            struct round all = joined(r, q, 1);
            if (window(r, 0, all.count, &hash) && window(r, all.count, all.count, &former) &&
                hash == former && hash == all.hash)
                return all.count;
        }
    }
    return 0;
}
