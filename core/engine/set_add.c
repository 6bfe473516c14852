/* SPDX-License-Identifier: Apache-2.0
 *
 * set_add: makes sets for hvd_set_add() and hvd_set_split(): all ranks of the world call. By votes
 * of the world (vote.h) all of them go on or all get the same error.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/rule.h"
#include "core/engine/set_call.h"
#include "core/engine/set_groups.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"
#include "core/negotiate/ranklist.h"

struct call {
    const struct set_wish *wish;
    int *groups;            /* by rule: [world.size] each rank's group */
    int *ranks;             /* by rule: [n] those of this rank's group */
    struct set_entry entry; /* this rank's set */
    struct world world;     /* the user's */
    int64_t epoch;          /* in which all ranks have begun */
    uint8_t *cards;         /* [ncards * CARD_BYTES] a card's length (2 bytes) and the card */
    size_t ncards;          /* the set's ranks; by rule: all ranks */
};

static void free_call(struct call *call)
{
    free(call->groups);
    free(call->ranks);
    free(call->cards);
    call->groups = call->ranks = NULL;
    call->cards = NULL;
}

/* Where the card of the set's rank i is. */
static uint8_t *card_of(const struct call *call, const struct set *set, int i)
{
    return call->cards + (size_t)(call->groups ? set->view.ranks[i] : i) * CARD_BYTES;
}

static size_t card_length(const uint8_t *card)
{
    return (size_t)(card[0] | card[1] << 8);
}

/* -EAGAIN, on all ranks: a rank was lost before it could give its card. */
static int check_cards(const struct call *call, const struct set *set, struct err *err)
{
    for (size_t i = 0; i < call->ncards; i++) {
        int rank = call->groups ? (int)i : set->view.ranks[i];
        bool expected = !call->groups || call->groups[i] >= 0;
        if (expected && card_length(call->cards + i * CARD_BYTES) == 0)
            return err_set(err, EAGAIN, "rank %d was lost meanwhile", rank);
    }
    return 0;
}

/* All ranks get the members' cards; -EAGAIN on all of them if a member was lost before. */
static int exchange_cards(const struct vote *v, const struct making *m, const struct call *call,
                          struct err *err)
{
    struct set *set = m->set;
    bool member = set->view.rank >= 0;
    if (member) {
        uint8_t *own = card_of(call, set, set->view.rank);
        own[0] = (uint8_t)m->card.len;
        own[1] = (uint8_t)(m->card.len >> 8);
        memcpy(own + 2, m->card.data, m->card.len);
    }
    int rc = vote_union(v, call->cards, call->ncards * CARD_BYTES, err);
    if (rc == 0)
        rc = check_cards(call, set, err);
    for (int i = 0; rc == 0 && member && i < set->boot.size; i++) {
        const uint8_t *from = card_of(call, set, i);
        size_t len = card_length(from);
        buf_put(&set->boot.cards[i], from + 2, len < CARD_BYTES - 2 ? len : CARD_BYTES - 2);
    }
    return rc;
}

/* In an elastic job: waits until all ranks are in one epoch, and gives them the highest number that
 * one of them has used for a set. A joiner has used none. */
static int begin(struct engine *e, int64_t *ret_epoch, struct err *err)
{
    enum { AT, NOT_AT, ADDED, N };
    const struct vote v = {.engine = e, .name = "hvd_set_add: the epoch"};
    int64_t agreed[N];
    int rc;
    *ret_epoch = atomic_load(&e->epoch);
    if (!e->boot.elastic)
        return 0;
    do {
        int64_t epoch = atomic_load(&e->epoch);
        const int64_t mine[N] = {[AT] = epoch, [NOT_AT] = -epoch, [ADDED] = e->sets.added};
        rc = vote_max(&v, mine, N, agreed, err);
    } while (rc == 0 && agreed[AT] != -agreed[NOT_AT]);
    if (rc < 0)
        return rc;
    e->sets.added = (int)agreed[ADDED];
    *ret_epoch = agreed[AT];
    return 0;
}

/* The user's world. It stays: the caller keeps other threads from hvd_commit(). */
static const struct world *user_world(struct engine *e)
{
    drive_lock(e);
    const struct world *w = e->world;
    drive_leave(e);
    return w;
}

static int find_group(struct engine *e, struct call *call, struct err *err)
{
    const struct world *w = user_world(e);
    size_t n = (size_t)w->size;
    call->groups = calloc(n, sizeof(*call->groups));
    call->ranks = calloc(n, sizeof(*call->ranks));
    if (!call->groups || !call->ranks)
        return err_set(err, ENOMEM, "no memory for the groups of %d ranks", w->size);
    int rc = set_groups_compute(call->wish->rule, w, call->groups, err);
    if (rc < 0)
        return rc;
    call->ncards = n;
    call->entry =
        (struct set_entry){.name = call->wish->rule, .ranks = call->ranks, .n = 0, .by_rule = true};
    call->entry.n = rule_group_of(call->groups, w->size, w->rank, call->ranks);
    call->entry.whole = call->entry.n;
    return 0;
}

/* *ret_wrong: the call itself is wrong, on every rank that makes it. */
static void find_ranks(struct engine *e, struct call *call, struct err *mine, struct err *ret_wrong)
{
    const struct set_wish *wish = call->wish;
    if (wish->rule) {
        find_group(e, call, mine);
        return;
    }
    call->ncards = (size_t)(wish->n > 0 ? wish->n : 0);
    call->entry = (struct set_entry){.ranks = wish->ranks, .n = wish->n, .whole = wish->n};
    if (ranklist_check("hvd_set_add", wish->ranks, wish->n, call->world.size, ret_wrong) == -ENOMEM)
        *mine = *ret_wrong;
}

/* This rank's own part of the first step. */
static void prepare(struct making *m, struct engine *e, struct call *call, struct err *ret_wrong)
{
    find_ranks(e, call, &m->mine, ret_wrong);
    if (m->mine.code || ret_wrong->code)
        return;
    making_open(m, e, &call->entry);
    if (m->set && m->set->boot.epoch != (uint32_t)call->epoch)
        err_set(&m->mine, EAGAIN, "a rank was lost meanwhile");
    call->cards = calloc(call->ncards + 1, CARD_BYTES);
    if (!call->cards)
        err_set(&m->mine, ENOMEM, "no memory for %zu cards", call->ncards);
}

/* All ranks ask for the same, and none has failed. */
static int compare(const struct vote *v, struct engine *e, const struct call *call,
                   const struct err *mine, struct err *err)
{
    const struct set_wish *wish = call->wish;
    const struct err well = {0};
    struct set_call said;
    if (wish->rule)
        set_call_split(&said, wish->rule);
    else
        set_call_add(&said, wish->ranks, wish->n);
    int rc = set_call_compare(v, &said, call->world.rank, mine, err);
    if (rc == 0 && wish->rule)
        rc = set_groups_compare(v, wish->rule, user_world(e), call->groups, &well, err);
    return rc == 1 ? err->code : rc;
}

static int name_it(struct engine *e, struct set *set, const char *name, struct err *err)
{
    set->number = e->sets.added + 1;
    set_write_label(set->label, sizeof(set->label), set->number, name);
    if (name && !(set->name = strdup(name)))
        return err_set(err, ENOMEM, "no memory for the rule of a set");
    return 0;
}

static int make(struct making *m, struct engine *e, struct call *call, struct err *err)
{
    const struct vote v = {.engine = e, .name = SET_CALL_NAME};
    struct err wrong = {0};
    int rc = begin(e, &call->epoch, err);
    if (rc < 0)
        return rc;
    engine_world(e, &call->world);
    prepare(m, e, call, &wrong);
    engine_explain(&m->mine);
    rc = compare(&v, e, call, &m->mine, err);
    if (rc == 0 && wrong.code) {
        *err = wrong; /* on all ranks, because all have asked for the same */
        return wrong.code;
    }
    if (rc == 0)
        rc = exchange_cards(&v, m, call, err);
    if (rc < 0)
        return rc;
    if (name_it(e, m->set, call->wish->rule, &m->mine) == 0)
        making_connect(m);
    return vote_well(&v, call->world.rank, &m->mine, err);
}

int set_make(struct engine *e, const struct set_wish *wish, struct set **ret, struct err *err)
{
    struct making m = {.set = NULL};
    struct call call = {.wish = wish};
    int rc = make(&m, e, &call, err);
    free_call(&call);
    making_end(&m, e, rc);
    if (rc == 0)
        *ret = m.set;
    return rc;
}
