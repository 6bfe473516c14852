/* SPDX-License-Identifier: Apache-2.0
 *
 * set_brought: see set_brought.h.
 */
#include "core/engine/set_brought.h"

#include <errno.h>
#include <stdlib.h>

#include "core/engine/engine.h"
#include "core/engine/set_private.h"

void set_brought_free(struct set_brought *b)
{
    free(b->flags);
    free(b->reports);
}

static int read_one(struct set *set, struct set_brought *b, int i, struct err *err)
{
    struct buf *card = &set->boot.cards[i];
    b->flags[i] = card->len > 0 ? card->data[0] : SET_REMOVES;
    b->any |= b->flags[i];
    b->all &= b->flags[i];
    buf_consume(card, card->len > 0);
    int rc = b->flags[i] & SET_REMOVES ? 0 : report_take(card, &b->reports[i], err);
    return rc < 0 ? err_prefix(err, "rank %d", set->ranks[i]) : 0;
}

int set_brought_read(struct set *set, struct set_brought *b, struct err *err)
{
    int n = set->boot.size, rc = 0;
    if (n < 1) /* this rank is one of them */
        return err_set(err, EPROTO, "a set without ranks");
    b->n = n;
    b->all = UINT8_MAX;
    b->flags = calloc((size_t)n, sizeof(*b->flags));
    b->reports = calloc((size_t)n, sizeof(*b->reports));
    if (!b->flags || !b->reports)
        return err_set(err, ENOMEM, "no memory for %d reports", n);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = read_one(set, b, i, err);
    return rc;
}

uint64_t set_brought_done(const struct set_brought *b)
{
    uint64_t done = 0;
    for (int i = 0; i < b->n; i++)
        if (!(b->flags[i] & SET_BLANK) && b->reports[i].done > done)
            done = b->reports[i].done;
    return done;
}

uint64_t set_brought_gpu_done(const struct set_brought *b)
{
    uint64_t done = 0;
    for (int i = 0; i < b->n; i++)
        if (!(b->flags[i] & SET_BLANK) && b->reports[i].gpu_done > done)
            done = b->reports[i].gpu_done;
    return done;
}

int set_brought_reports(const struct set_brought *b, int me, struct report *ret, int *ret_me)
{
    int n = 0;
    for (int i = 0; i < b->n; i++) {
        if (i == me)
            *ret_me = n;
        if (!(b->flags[i] & SET_BLANK))
            ret[n++] = b->reports[i];
    }
    return n;
}
