/* SPDX-License-Identifier: Apache-2.0
 *
 * epoch_history: see epoch_history.h.
 */
#include "operator/coordinator/epoch_history.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"

#define SETTLES (2 * CLOCK_S) /* by then all ranks have reported how long recovery took */

static void drop_oldest(struct epoch_history *all)
{
    free(all->list[0].cause);
    memmove(all->list, all->list + 1, (size_t)(all->n - 1) * sizeof(*all->list));
    all->n--;
}

/* Starts with room for one: most jobs have one epoch all their life. NULL: no memory. */
static struct epoch_record *add(struct epoch_history *all)
{
    if (all->list && all->n == EPOCH_HISTORY_MAX)
        drop_oldest(all);
    if (!all->list || all->n == all->cap) {
        int cap = all->cap ? 2 * all->cap : 1;
        struct epoch_record *grown = realloc(all->list, (size_t)cap * sizeof(*grown));
        if (!grown)
            return NULL;
        all->list = grown;
        all->cap = cap;
    }
    struct epoch_record *e = &all->list[all->n++];
    *e = (struct epoch_record){0};
    return e;
}

static struct epoch_record *newest(struct epoch_history *all)
{
    return all->list && all->n > 0 ? &all->list[all->n - 1] : NULL;
}

/* roster.last.lost is also set when a planned change reaches one rank before another, since the
 * epoch then begins without a boundary. So a loss also requires that members are missing. */
static bool is_loss(const struct roster *r, const struct epoch_record *before)
{
    int stayed = 0;
    for (int i = 0; i < r->world.n; i++)
        stayed += !r->world.cards[i].is_new;
    return r->last.lost && before && stayed < before->size;
}

static void note(struct epoch_history *all, const struct roster *r)
{
    bool first = all->n == 0, lost = is_loss(r, newest(all));
    struct epoch_record *e = add(all);
    if (!e)
        return;
    e->epoch = r->epoch;
    e->at = r->last.at;
    e->size = r->size;
    e->first = first;
    e->lost = lost;
    e->ms = (double)r->last.took / CLOCK_MS;
    if (!first) {
        all->planned += !e->lost;
        all->lost += e->lost;
    }
}

/* Takes what is known only after the epoch began: a more precise cause, and the repair time. */
static void follow(struct epoch_record *e, const struct roster *r)
{
    if (r->work.repair_epoch == e->epoch)
        e->repair = (double)r->work.repair_last / CLOCK_MS;
    if (r->last.epoch != e->epoch || (e->cause && strcmp(e->cause, r->last.cause) == 0))
        return;
    char *cause = strdup(r->last.cause);
    if (cause) {
        free(e->cause);
        e->cause = cause;
    }
}

bool epoch_history_update(struct epoch_history *all, const struct roster *r)
{
    struct epoch_record *e = newest(all);
    bool fresh = r->epoch > 0 && (!e || e->epoch != r->epoch || e->at != r->last.at);
    if (fresh)
        note(all, r);
    e = newest(all);
    if (e)
        follow(e, r);
    return fresh;
}

double epoch_record_cost(const struct epoch_record *e)
{
    bool trained_on = !e->lost && e->repair > 0;
    return trained_on || e->repair > e->ms ? e->repair : e->ms;
}

bool epoch_history_next_final(struct epoch_history *all, uint64_t now, bool *ret_lost,
                              double *ret_ms)
{
    for (int i = 0; i < all->n; i++) {
        struct epoch_record *e = &all->list[i];
        bool last = i == all->n - 1;
        if (e->settled || (last && now - e->at < SETTLES))
            continue;
        e->settled = true;
        if (e->first)
            continue;
        *ret_lost = e->lost;
        *ret_ms = epoch_record_cost(e);
        return true;
    }
    return false;
}

void epoch_history_fini(struct epoch_history *all)
{
    for (int i = 0; i < all->n; i++)
        free(all->list[i].cause);
    free(all->list);
    *all = (struct epoch_history){0};
}
