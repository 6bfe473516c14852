/* SPDX-License-Identifier: Apache-2.0
 *
 * set_form: makes a set for hvd_set_form(): its members alone call. They meet twice (meet.h), so
 * that all of them go on or all get the same error: with their cards, and when they have made a
 * mesh and a circle of it.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/hash.h"
#include "core/base/sock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/meet.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"
#include "core/negotiate/ranklist.h"

/* A member is at most CONNECT_MS behind the first one. */
#define AGREE_MS (2 * CONNECT_MS)

/* ---- an agreement --------------------------------------------------------------------------- */

/* The result of a meeting. Each member brings {i32 code, text} if it has failed, else {0, card}. */
struct outcome {
    const int *ranks;  /* [n] of the members, for messages */
    struct err err;    /* of the member that failed; of one that did not fail because of others */
    uint32_t serial;   /* as of struct rendezvous_end */
    struct buf *cards; /* [n] where the cards go; NULL: there are none */
    struct set *makes, *removes; /* if all went well; NULL: not in this round */
};

static void take_failure(struct outcome *o, int rank, struct reader *r, int code)
{
    char text[sizeof(o->err.msg)];
    struct err its = {0};
    size_t len = r->len - r->pos < sizeof(text) - 1 ? r->len - r->pos : sizeof(text) - 1;
    const char *from = reader_bytes(r, len);
    memcpy(text, from ? from : "", len);
    text[len] = 0;
    err_set(&its, -code, "rank %d: %s", rank, text);
    if (!o->err.code || (vote_by_another(&o->err) && !vote_by_another(&its)))
        o->err = its;
}

static void take(void *ctx, const struct rendezvous_end *end)
{
    struct outcome *o = ctx;
    o->serial = end->serial;
    for (int i = 0; i < end->n; i++) {
        struct reader r = reader_over(end->of[i].data, end->of[i].len);
        int code = (int32_t)reader_u32(&r);
        if (r.failed || code > 0 || code < -4095)
            code = -EPROTO;
        if (code < 0)
            take_failure(o, o->ranks[i], &r, code);
        else if (o->cards && r.len - r.pos <= CARD_BYTES) /* for which there is room */
            buf_put(&o->cards[i], r.data + r.pos, r.len - r.pos);
    }
    if (o->err.code == 0 && o->makes)
        o->makes->made = true;
    if (o->err.code == 0 && o->removes)
        set_claims_removed(o->removes->circle.engine, o->removes->number);
}

/* Where the members meet. */
struct place {
    struct rendezvous_point point; /* its ranks are those of the world's mesh in this epoch */
    uint32_t epoch;
    const char *what; /* "hvd_set_form tp" */
};

/* card: NULL in rounds without. Returns 0 if no member has failed. */
static int meet(struct engine *e, const struct place *at, uint64_t limit_ms, const struct err *mine,
                const struct buf *card, struct outcome *o, struct err *err)
{
    struct meet m = {.point = at->point,
                     .what = at->what,
                     .limit = limit_ms * CLOCK_MS,
                     .epoch = at->epoch,
                     .take = take,
                     .ctx = o};
    o->ranks = at->point.ranks;
    buf_put_u32(&m.mine, (uint32_t)mine->code);
    if (mine->code)
        buf_put(&m.mine, mine->msg, strlen(mine->msg));
    else if (card)
        buf_put(&m.mine, card->data, card->len);
    int rc = meet_run(e, &m, err);
    buf_fini(&m.mine);
    if (rc == 0 && o->err.code) {
        *err = o->err;
        rc = err->code;
    }
    return rc;
}

/* The ranks of the set's circle, as they are numbered in the world's mesh. -EAGAIN: not any more.
 */
static int copy_ranks(struct engine *e, const struct set *set, uint32_t epoch, int **ret,
                      int *ret_n, struct err *err)
{
    int rc = 0;
    drive_lock(e); /* a repair changes them */
    int n = set->boot.size;
    *ret = calloc((size_t)n + 1, sizeof(**ret));
    if (!*ret)
        rc = err_set(err, ENOMEM, "no memory for %d ranks", n);
    else if (set->boot.epoch != epoch)
        rc = err_set(err, EAGAIN, "a rank was lost meanwhile");
    else
        memcpy(*ret, set->ranks, (size_t)n * sizeof(**ret));
    drive_leave(e);
    *ret_n = n;
    return rc;
}

int set_form_agree(struct engine *e, struct set *set, int round, uint32_t epoch,
                   const struct err *mine, struct err *err)
{
    char name[32], what[64];
    auto_free int *ranks = NULL;
    struct outcome o = {.removes = round == 1 ? set : NULL};
    snprintf(name, sizeof(name), "%d", set->number);
    snprintf(what, sizeof(what), "hvd_set_remove %d", set->number);
    struct place at = {.what = what,
                       .epoch = epoch,
                       .point = {.name = name, .round = (uint8_t)(SET_ROUND_REMOVE + round)}};
    int rc = copy_ranks(e, set, epoch, &ranks, &at.point.n, err);
    at.point.ranks = ranks;
    return rc == 0 ? meet(e, &at, e->set.start_timeout_ms, mine, NULL, &o, err) : rc;
}

/* ---- the steps ------------------------------------------------------------------------------ */

/* The last meeting. If the epoch ends before this rank has heard the result, another rank may tell
 * it (set_claims.h). */
static int confirm(struct making *m, struct place *at, struct err *err)
{
    struct set *set = m->set;
    struct engine *e = set->circle.engine;
    struct outcome o = {.makes = set};
    at->point.round = SET_ROUND_CONNECTED;
    drive_lock(e);
    if (m->mine.code == 0 && e->boot.elastic)
        set_claims_begin(e, set, &m->mine);
    drive_leave(e);
    int rc = meet(e, at, AGREE_MS, &m->mine, NULL, &o, err);
    drive_lock(e);
    if (rc == -EAGAIN && set->made)
        rc = 0;
    if (rc < 0)
        set_claims_end(e, set);
    drive_leave(e);
    return rc;
}

/* The ranks of the user's world as they are numbered in the world's mesh, for the meetings of this
 * epoch. *ret NULL: they are the same. */
static int find_place(struct engine *e, struct place *at, int **ret, struct err *err)
{
    int rc = 0;
    drive_lock(e);
    const struct world_map *map = &e->circle.map;
    at->epoch = atomic_load(&e->epoch);
    if (!map->same && !(*ret = calloc((size_t)at->point.n, sizeof(**ret))))
        rc = err_set(err, ENOMEM, "no memory for %d ranks", at->point.n);
    for (int i = 0; *ret && rc == 0 && i < at->point.n; i++) {
        int rank = at->point.ranks[i];
        (*ret)[i] = rank < map->size ? map->to_mesh[rank] : -1;
        if (rank >= map->size)
            rc = err_set(err, EAGAIN, "the world has become smaller meanwhile");
        else if ((*ret)[i] < 0) /* on all members */
            rc = err_set(err, EOWNERDEAD, "rank %d is lost", rank);
    }
    drive_leave(e);
    if (rc == 0 && *ret)
        at->point.ranks = *ret;
    return rc;
}

static int form(struct making *m, struct engine *e, struct place *at, struct err *err)
{
    struct outcome o = {.cards = NULL};
    auto_free int *in_mesh = NULL;
    const int *ranks = at->point.ranks;
    int rc = find_place(e, at, &in_mesh, err);
    if (rc < 0)
        return rc;
    const struct set_entry entry = {.ranks = ranks, .n = at->point.n, .whole = at->point.n};
    making_open(m, e, &entry);
    if (m->set && m->set->boot.epoch != at->epoch)
        return err_set(err, EAGAIN, "a rank was lost meanwhile");
    engine_explain(&m->mine);
    if (m->mine.code == 0)
        o.cards = m->set->boot.cards;
    at->point.round = SET_ROUND_CARDS;
    rc = meet(e, at, e->set.start_timeout_ms, &m->mine, &m->card, &o, err);
    if (rc < 0)
        return rc;
    struct set *set = m->set;
    set->number = SETS_FORMED + (int)(o.serial % (INT_MAX - SETS_FORMED));
    set_write_label(set->label, sizeof(set->label), set->number, at->point.name);
    if (!(set->name = strdup(at->point.name)))
        err_set(&m->mine, ENOMEM, "no memory for the name of a set");
    making_connect(m);
    if (m->mine.code == -EAGAIN) { /* in another epoch, where the others begin anew, too */
        *err = m->mine;
        return -EAGAIN;
    }
    return confirm(m, at, err);
}

static int check(struct engine *e, const char *name, const int *ranks, int n, struct err *err)
{
    size_t len = name ? strnlen(name, HVD_MAX_NAME + 1) : 0;
    struct world w;
    engine_world(e, &w);
    if (len == 0 || len > HVD_MAX_NAME)
        return err_set(err, EINVAL, "hvd_set_form: a set's name has 1 to %d bytes", HVD_MAX_NAME);
    int rc = ranklist_check("hvd_set_form", ranks, n, w.size, err);
    if (rc == 0 && ranklist_find(ranks, n, w.rank) < 0)
        rc = err_set(err, EINVAL,
                     "hvd_set_form: rank %d is not one of the set's ranks, which call it alone",
                     w.rank);
    return rc;
}

int set_form(struct engine *e, const char *name, const int *ranks, int n, struct set **ret,
             struct err *err)
{
    struct making m = {.set = NULL};
    char what[HVD_MAX_NAME + 1], list[160];
    struct place at = {.point = {.name = name, .ranks = ranks, .n = n}, .what = what};
    int rc = check(e, name, ranks, n, err);
    if (rc < 0)
        return rc;
    int length = snprintf(what, sizeof(what), "hvd_set_form %s", name);
    if (length >= (int)sizeof(what)) /* two long names must not become equal here */
        snprintf(what, sizeof(what), "hvd_set_form %.60s... (%016llx)", name,
                 (unsigned long long)hash_str(name));
    rc = form(&m, e, &at, err);
    making_end(&m, e, rc);
    if (rc == 0) {
        *ret = m.set;
        return 0;
    }
    ranklist_text(ranks, n, list, sizeof(list));
    return err_prefix(err, "hvd_set_form '%.60s' of %s", name, list);
}

int set_formed(struct engine *e, struct set *set, struct err *err)
{
    int64_t nothing = 0;
    const struct vote v = {.engine = e, .set = set->number, .name = "hvd_set_form"};
    int rc = e->boot.elastic ? vote_max(&v, &nothing, 1, &nothing, err) : 0;
    drive_lock(e);
    set_claims_end(e, set);
    drive_leave(e);
    return rc;
}
