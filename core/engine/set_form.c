/* SPDX-License-Identifier: Apache-2.0
 *
 * set_form: makes a set for hvd_set_form(): its members alone call. They meet twice (meet.h), so
 * that all of them go on or all get the same error: with their cards, and when they have made a
 * mesh and a circle of it.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

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

/* The same name in other rounds is another point of rendezvous. */
enum { ROUND_CARDS, ROUND_CONNECTED, ROUND_REMOVE };

/* ---- an agreement --------------------------------------------------------------------------- */

/* The result of a meeting. Each member brings {i32 code, text} if it has failed, else {0, card}. */
struct outcome {
    const struct rendezvous_point *point;
    struct err err;    /* of the member that failed; of one that did not fail because of others */
    uint32_t serial;   /* as of struct rendezvous_end */
    struct buf *cards; /* [n] where the cards go; NULL: there are none */
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
            take_failure(o, o->point->ranks[i], &r, code);
        else if (o->cards && r.len - r.pos <= CARD_BYTES) /* for which there is room */
            buf_put(&o->cards[i], r.data + r.pos, r.len - r.pos);
    }
}

/* card: NULL in rounds without. Returns 0 if no member has failed. */
static int meet(struct engine *e, const struct rendezvous_point *point, const char *what,
                uint64_t limit_ms, const struct err *mine, const struct buf *card,
                struct outcome *o, struct err *err)
{
    struct meet m = {
        .point = *point, .what = what, .limit = limit_ms * CLOCK_MS, .take = take, .ctx = o};
    o->point = point;
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

int set_form_agree(struct engine *e, const struct set *set, int round, const struct err *mine,
                   struct err *err)
{
    char name[32], what[64];
    struct outcome o = {.cards = NULL};
    snprintf(name, sizeof(name), "%d", set->number);
    snprintf(what, sizeof(what), "hvd_set_remove %d", set->number);
    const struct rendezvous_point point = {.name = name,
                                           .round = (uint8_t)(ROUND_REMOVE + round),
                                           .ranks = set->ranks,
                                           .n = set->size};
    return meet(e, &point, what, e->set.start_timeout_ms, mine, NULL, &o, err);
}

/* ---- the steps ------------------------------------------------------------------------------ */

static int connect_members(struct making *m, struct rendezvous_point *point, const char *what,
                           struct err *err)
{
    struct outcome o = {.cards = NULL};
    making_connect(m);
    point->round = ROUND_CONNECTED;
    return meet(m->set->circle.engine, point, what, AGREE_MS, &m->mine, NULL, &o, err);
}

static int form(struct making *m, struct engine *e, struct rendezvous_point *point,
                const char *what, struct err *err)
{
    struct outcome o = {.cards = NULL};
    making_open(m, e, point->ranks, point->n);
    engine_explain(&m->mine);
    if (m->mine.code == 0)
        o.cards = m->set->boot.cards;
    point->round = ROUND_CARDS;
    int rc = meet(e, point, what, e->set.start_timeout_ms, &m->mine, &m->card, &o, err);
    if (rc < 0)
        return rc;
    m->set->number = SETS_FORMED + (int)(o.serial % (INT_MAX - SETS_FORMED));
    snprintf(m->set->text, sizeof(m->set->text), "set %d, '%.60s'", m->set->number, point->name);
    return connect_members(m, point, what, err);
}

static int check(const struct engine *e, const struct rendezvous_point *point, struct err *err)
{
    size_t len = point->name ? strnlen(point->name, HVD_MAX_NAME + 1) : 0;
    if (len == 0 || len > HVD_MAX_NAME)
        return err_set(err, EINVAL, "hvd_set_form: a set's name has 1 to %d bytes", HVD_MAX_NAME);
    int rc = ranklist_check("hvd_set_form", point->ranks, point->n, e->circle.size, err);
    if (rc == 0 && ranklist_find(point->ranks, point->n, e->circle.rank) < 0)
        rc = err_set(err, EINVAL,
                     "hvd_set_form: rank %d is not one of the set's ranks, which call it alone",
                     e->circle.rank);
    return rc;
}

int set_form(struct engine *e, const char *name, const int *ranks, int n, struct set **ret,
             struct err *err)
{
    struct rendezvous_point point = {.name = name, .ranks = ranks, .n = n};
    struct making m = {.set = NULL};
    char what[HVD_MAX_NAME + 1], list[160];
    int rc = check(e, &point, err);
    if (rc < 0)
        return rc;
    int length = snprintf(what, sizeof(what), "hvd_set_form %s", name);
    if (length >= (int)sizeof(what)) /* two long names must not become equal here */
        snprintf(what, sizeof(what), "hvd_set_form %.60s... (%016llx)", name,
                 (unsigned long long)hash_str(name));
    rc = form(&m, e, &point, what, err);
    making_end(&m, e, rc);
    if (rc == 0) {
        *ret = m.set;
        return 0;
    }
    ranklist_text(ranks, n, list, sizeof(list));
    return err_prefix(err, "hvd_set_form '%.60s' of %s", name, list);
}
