/* SPDX-License-Identifier: Apache-2.0
 *
 * set_table: see set_table.h. What the ranks put together by a bitwise "or" is, where places are
 * kept: {for each rank u8 whether it is stale}; then the sets of hvd_set_add(), which all ranks
 * that are not new know and write alike; and where places are kept, for each rank the sets of
 * hvd_set_form() of which it is the lowest member that is not new. A set is a set_record.
 */
#include "core/engine/set_table.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/inject.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/set_gain.h"
#include "core/engine/set_move.h"
#include "core/engine/set_private.h"
#include "core/engine/set_record.h"
#include "core/engine/vote.h"
#include "core/negotiate/ranklist.h"

/* ---- writing -------------------------------------------------------------------------------- */

static void write_set(const struct set *set, struct buf *out)
{
    if (set->by_rule) {
        set_record_put_rule(set->number, set->name, out);
        return;
    }
    const int *list = set->places ? set->places : set->view.ranks;
    int n = set->places ? set->whole : set->view.size;
    set_record_put(set->number, set->name, set->fixed, list, n, out);
}

/* Whether this rank has to tell of a set that its members alone know. Members that are not in the
 * newest world are lost. */
static bool tells(const struct set *set, const struct world *w, const struct world *newest)
{
    for (int i = 0; i < set->whole; i++) {
        int r = world_at_place(w, set->places[i]);
        if (r >= 0 && !w->fresh[r] && world_rank_of(newest, w->members[r]) >= 0)
            return r == w->rank;
    }
    return false;
}

/* What this rank knows in an epoch. */
struct known {
    uint32_t epoch;
    struct buf common; /* the sets that all ranks know */
    struct buf own;    /* those of which this rank tells */
};

static void free_known(struct known *k)
{
    buf_fini(&k->common);
    buf_fini(&k->own);
}

static void write_known(struct engine *e, const struct world *w, struct known *k)
{
    drive_lock(e);
    const struct world *newest = e->worlds;
    k->epoch = newest->epoch;
    pthread_mutex_lock(&e->sets.lock);
    for (size_t i = 0; !w->fresh[w->rank] && i < e->sets.n; i++) {
        const struct set *set = e->sets.table[i];
        if (set->number < SETS_FORMED)
            write_set(set, &k->common);
        else if (set->places && tells(set, w, newest))
            write_set(set, &k->own);
    }
    pthread_mutex_unlock(&e->sets.lock);
    drive_leave(e);
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Where places are kept the list has places, and the ranks are those that have them. */
static int find_ranks(const struct world *w, const int *places, int whole, int *ranks)
{
    int n = 0;
    for (int i = 0; i < whole; i++) {
        int r = world_at_place(w, places[i]);
        if (r >= 0)
            ranks[n++] = r;
    }
    return n;
}

static int learn(struct engine *e, const struct world *w, struct set_entry *entry, int *list,
                 struct err *err)
{
    auto_free int *ranks = NULL;
    entry->ranks = list;
    entry->n = entry->whole;
    if (!e->boot.keeps_places || entry->by_rule)
        return set_learn(e, entry, err);
    ranks = calloc((size_t)entry->whole + 1, sizeof(*ranks));
    if (!ranks)
        return err_set(err, ENOMEM, "no memory for a set of %d ranks", entry->whole);
    entry->places = list;
    entry->ranks = ranks;
    entry->n = find_ranks(w, list, entry->whole, ranks);
    bool in = ranklist_find(ranks, entry->n, w->rank) >= 0;
    return entry->number < SETS_FORMED || in ? set_learn(e, entry, err) : 0;
}

static int read_set(struct engine *e, const struct world *w, struct reader *r, struct err *err)
{
    struct set_record record;
    int most = e->boot.keeps_places ? BOOT_SIZE_MAX : w->size;
    int rc = set_record_read(r, most, &record, err);
    struct set_entry entry = {.number = record.number,
                              .name = record.name[0] ? record.name : NULL,
                              .whole = record.n,
                              .fixed = record.fixed,
                              .by_rule = record.by_rule};
    if (rc == 0)
        rc = learn(e, w, &entry, record.list, err);
    set_record_fini(&record);
    return rc;
}

/* ---- together ------------------------------------------------------------------------------- */

/* Where the parts of the table are. */
struct layout {
    size_t common, own, total; /* bytes from the beginning; own: this rank's part */
    bool alone;                /* some part is told by one rank alone */
    bool same;                 /* all ranks were in the epoch of this rank's part */
};

enum { AT, NOT_AT, COMMON, OWN }; /* words of the vote: [OWN + w->size] */

static bool is_same(const int64_t *words, uint32_t epoch)
{
    return words[AT] == epoch && words[NOT_AT] == -(int64_t)epoch;
}

/* All ranks tell how long their parts are. words: [OWN + w->size] 0 */
static int agree_layout(const struct vote *v, const struct world *w, const struct known *k,
                        int64_t *words, struct layout *ret, struct err *err)
{
    bool places = v->engine->boot.keeps_places;
    words[AT] = k->epoch;
    words[NOT_AT] = -(int64_t)k->epoch;
    words[COMMON] = (int64_t)k->common.len;
    words[OWN + w->rank] = (int64_t)k->own.len;
    int rc = vote_max(v, words, places ? OWN + w->size : OWN, words, err);
    if (rc < 0)
        return rc;
    *ret = (struct layout){.common = places ? (size_t)w->size : 0};
    size_t at = ret->common + (size_t)words[COMMON];
    for (int r = 0; places && r < w->size; r++) {
        if (r == w->rank)
            ret->own = at;
        at += (size_t)words[OWN + r];
        ret->alone = ret->alone || words[OWN + r] > 0;
    }
    ret->total = at;
    ret->same = is_same(words, k->epoch);
    return 0;
}

/* This rank's part of the table, at its place in all of it. NULL: no memory. */
static uint8_t *fill(const struct engine *e, const struct world *w, const struct layout *at,
                     const struct known *k)
{
    uint8_t *bytes = calloc(1, at->total + 1);
    if (!bytes)
        return NULL;
    if (k->common.len > 0)
        memcpy(bytes + at->common, k->common.data, k->common.len);
    if (k->own.len > 0)
        memcpy(bytes + at->own, k->own.data, k->own.len);
    if (e->boot.keeps_places)
        bytes[w->rank] = sets_is_stale(e, w);
    return bytes;
}

/* stale: [w->size] where places are kept, which ranks have missed steps. */
static int read_table(struct engine *e, struct world *w, const uint8_t *bytes,
                      const struct layout *at, uint8_t *stale, struct err *err)
{
    struct reader r = reader_over(bytes, at->total);
    int rc = 0;
    reader_bytes(&r, at->common);
    while (rc == 0 && w->fresh[w->rank] && r.pos < r.len)
        rc = read_set(e, w, &r, err);
    if (rc == 0 && e->boot.keeps_places) {
        memcpy(stale, bytes, (size_t)w->size);
        sets_gain(e, w, bytes);
    }
    return rc;
}

/* Whether every rank that has told its part was there until all had it: no epoch has begun since
 * the first vote. The same on all ranks. */
static int check_parts(const struct vote *v, const struct known *k, bool *ret, struct err *err)
{
    int64_t epoch = atomic_load(&v->engine->epoch), words[] = {[AT] = epoch, [NOT_AT] = -epoch};
    int rc = vote_max(v, words, 2, words, err);
    *ret = rc == 0 && is_same(words, k->epoch);
    return rc;
}

/* Returns 1 if a rank that tells a part alone may have been lost meanwhile: all ranks begin again.
 */
static int put_together(struct engine *e, struct world *w, const struct known *k, uint8_t *stale,
                        struct err *err)
{
    const struct vote v = {.engine = e, .name = "hvd_commit: sets"};
    struct layout at = {0};
    auto_free int64_t *words = calloc((size_t)w->size + OWN, sizeof(*words));
    if (!words || k->common.failed || k->own.failed)
        return err_set(err, ENOMEM, "no memory for the table of sets");
    int rc = agree_layout(&v, w, k, words, &at, err);
    if (rc < 0 || at.total == 0)
        return rc;
    if (at.alone && !at.same)
        return 1;
    inject_point("share");
    auto_free uint8_t *bytes = fill(e, w, &at, k);
    if (!bytes)
        return err_set(err, ENOMEM, "no memory for the table of sets");
    bool complete = true;
    rc = vote_union(&v, bytes, at.total, err);
    if (rc == 0 && at.alone)
        rc = check_parts(&v, k, &complete, err);
    if (rc == 0 && !complete)
        return 1;
    return rc == 0 ? read_table(e, w, bytes, &at, stale, err) : rc;
}

static int share(struct engine *e, struct world *w, uint8_t *stale, struct err *err)
{
    int rc;
    do {
        struct known k = {0};
        write_known(e, w, &k);
        rc = put_together(e, w, &k, stale, err);
        free_known(&k);
    } while (rc == 1);
    return rc;
}

static bool has_joiners(const struct world *w)
{
    for (int r = 0; r < w->size; r++)
        if (w->fresh[r])
            return true;
    return false;
}

int set_table_due(const struct engine *e, const struct world *w)
{
    return sets_will_gain(e, w) ? TABLE_GAINS : has_joiners(w) ? TABLE_SHARED : TABLE_KEPT;
}

/* The sets that joiners have to know, ranks that come to sets, then groups by rule. */
static int change_sets(struct engine *e, struct world *w, struct err *ret_refused, struct err *err)
{
    auto_free uint8_t *stale = calloc(1, (size_t)w->size);
    if (!stale)
        return err_set(err, ENOMEM, "no memory for %d ranks", w->size);
    for (int r = 0; r < w->size; r++)
        stale[r] = w->fresh[r];
    int rc = w->table != TABLE_KEPT ? share(e, w, stale, err) : 0;
    return rc == 0 ? sets_move(e, w, stale, ret_refused, err) : rc;
}

int set_table_share(struct engine *e, struct world *w, struct err *err)
{
    struct err refused = {0};
    int rc = change_sets(e, w, &refused, err);
    queue_open(e->queue);
    if (rc == 0 && refused.code) /* on all ranks */
        *err = refused;
    if (rc == 0 || e->failed)
        return rc == 0 ? refused.code : rc;
    drive_lock(e); /* the others wait for this rank, or it would not know a set that they remove */
    engine_fail_rank(e, err);
    drive_leave(e);
    return rc;
}
