/* SPDX-License-Identifier: Apache-2.0
 *
 * set_make: makes a set for hvd_set_add(). Each step ends with a vote of the whole world, so that
 * all ranks go on, or all of them stop with the same error:
 *
 *   1. All ranks have asked for the same set, and its members have opened sockets.
 *   2. The members have each other's cards.
 *   3. The members have made a mesh, and a circle of it.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/sock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/set_call.h"
#include "core/engine/set_private.h"
#include "core/engine/vote.h"
#include "core/negotiate/ranklist.h"

#define LEAVE_MS 5000 /* how long a set's last rank is waited for */

/* ---- its parts ------------------------------------------------------------------------------ */

static struct set *new_set(struct engine *e, const int *ranks, int n, struct err *err)
{
    struct set *set = calloc(1, sizeof(*set));
    if (set)
        set->ranks = calloc((size_t)n, sizeof(*set->ranks));
    if (!set || !set->ranks) {
        free(set);
        err_set(err, ENOMEM, "no memory for a set");
        return NULL;
    }
    memcpy(set->ranks, ranks, (size_t)n * sizeof(*ranks));
    set->size = n;
    set->rank = ranklist_find(ranks, n, e->circle.rank);
    set->circle.engine = e;
    set->circle.state = CIRCLE_MAKING;
    set->circle.name = set->text;
    set->circle.world_ranks = set->ranks;
    set->boot = (struct boot){.rank = set->rank,
                              .size = n,
                              .epoch = e->boot.epoch,
                              .has_key = e->boot.has_key,
                              .names = set->ranks,
                              .cancel = &e->sets.over,
                              .agent_fd = -1};
    memcpy(set->boot.key, e->boot.key, sizeof(set->boot.key));
    return set;
}

static int make_room(struct set *set, struct err *err)
{
    int rc = set->rank >= 0 ? boot_make_cards(&set->boot, false, err) : 0;
    for (int i = 0; rc == 0 && set->rank >= 0 && i < set->size; i++)
        if (!buf_reserve(&set->boot.cards[i], CARD_BYTES))
            rc = err_set(err, ENOMEM, "no memory for %d cards", set->size);
    return rc;
}

void making_open(struct making *m, struct engine *e, const int *ranks, int n)
{
    struct set *set = m->set = new_set(e, ranks, n, &m->mine);
    if (!set || make_room(set, &m->mine) < 0 || set->rank < 0 || sets_need_fds(e, n, &m->mine) < 0)
        return;
    mesh_listen_within(e->circle.mesh, &set->boot, &m->listener, &m->card, &m->mine);
    if (m->card.len > CARD_BYTES - 2)
        err_set(&m->mine, E2BIG, "a card of %zu bytes", m->card.len);
}

static int open_circle(struct set *set, struct mesh_listener *listener, struct err *err)
{
    struct circle *c = &set->circle;
    uint64_t limit = c->engine->set.start_timeout_ms;
    limit = limit < CONNECT_MS ? limit : CONNECT_MS;
    int rc = mesh_create(&set->boot, listener, deadline_in_ms(limit), &c->mesh, err);
    if (rc < 0)
        return rc;
    boot_drop_cards(&set->boot);
    if (c->mesh->hosts == 1)
        mesh_close_listener(c->mesh);
    c->rank = c->mesh->rank;
    c->size = c->mesh->size;
    rc = coll_create(c->mesh, &c->coll, err);
    if (rc == 0)
        rc = world_map_same(&c->map, c->size, err);
    if (rc == 0)
        rc = batches_init(c, err);
    return rc == 0 ? circle_negotiate(c, err) : rc;
}

void making_connect(struct making *m)
{
    inject_point("set");
    if (m->set->rank >= 0)
        open_circle(m->set, TAKE(m->listener), &m->mine);
    if (m->mine.code == 0)
        sets_prepare(m->set->circle.engine, m->set, &m->mine);
    engine_explain(&m->mine);
}

void making_end(struct making *m, struct engine *e, int rc)
{
    mesh_listener_destroy(m->listener);
    buf_fini(&m->card);
    if (rc == 0 || !m->set)
        return;
    sets_take_back(e, m->set);
    set_destroy(m->set);
}

/* ---- the steps ------------------------------------------------------------------------------ */

/* All ranks get the members' cards. cards: [size * CARD_BYTES] 0; a card's length (2 bytes) and the
 * card, for each member. */
static int exchange_cards(const struct vote *v, const struct making *m, uint8_t *cards,
                          struct err *err)
{
    struct set *set = m->set;
    size_t n = (size_t)set->size;
    if (set->rank >= 0) {
        uint8_t *own = cards + (size_t)set->rank * CARD_BYTES;
        own[0] = (uint8_t)m->card.len;
        own[1] = (uint8_t)(m->card.len >> 8);
        memcpy(own + 2, m->card.data, m->card.len);
    }
    int rc = vote_union(v, cards, n * CARD_BYTES, err);
    for (size_t i = 0; rc == 0 && set->rank >= 0 && i < n; i++) {
        const uint8_t *from = cards + i * CARD_BYTES;
        size_t len = (size_t)(from[0] | from[1] << 8);
        buf_put(&set->boot.cards[i], from + 2, len < CARD_BYTES - 2 ? len : CARD_BYTES - 2);
    }
    return rc;
}

static int make(struct making *m, struct engine *e, const int *ranks, int n, uint8_t **ret_cards,
                struct err *err)
{
    const struct vote v = {.engine = e, .name = SET_CALL_NAME};
    struct err wrong = {0};
    struct set_call call;
    set_call_add(&call, ranks, n);
    if (ranklist_check("hvd_set_add", ranks, n, e->circle.size, &wrong) == 0) {
        making_open(m, e, ranks, n);
        *ret_cards = calloc((size_t)n, CARD_BYTES);
        if (!*ret_cards)
            err_set(&m->mine, ENOMEM, "no memory for %d cards", n);
    } else if (wrong.code == -ENOMEM) {
        m->mine = wrong;
    }
    engine_explain(&m->mine);
    int rc = set_call_compare(&v, &call, e->circle.rank, &m->mine, err);
    if (rc == 0 && wrong.code) {
        *err = wrong; /* on all ranks, because all have asked for the same */
        return wrong.code;
    }
    if (rc == 0 && *ret_cards) /* a rank without has failed above */
        rc = exchange_cards(&v, m, *ret_cards, err);
    if (rc < 0)
        return rc;
    m->set->number = e->sets.added + 1;
    snprintf(m->set->text, sizeof(m->set->text), "set %d", m->set->number);
    making_connect(m);
    return vote_well(&v, e->circle.rank, &m->mine, err);
}

int set_make(struct engine *e, const int *ranks, int n, struct set **ret, struct err *err)
{
    struct making m = {.set = NULL};
    auto_free uint8_t *cards = NULL;
    int rc = make(&m, e, ranks, n, &cards, err);
    making_end(&m, e, rc);
    if (rc == 0)
        *ret = m.set;
    return rc;
}

/* ---- the end -------------------------------------------------------------------------------- */

void set_leave(struct set *set)
{
    struct circle *c = &set->circle;
    uint64_t deadline = deadline_in_ms(LEAVE_MS);
    struct err err = {0};
    while (!deadline_passed(deadline) && mesh_progress(c->mesh, NULL, &err) == 0) {
        if (control_flush(c) == 0)
            mesh_goodbye(c->mesh);
        if (mesh_all_left(c->mesh))
            return;
        mesh_sleep_begin(c->mesh);
        struct pollfd p = {.fd = mesh_fd(c->mesh), .events = POLLIN};
        poll(&p, 1, 5);
        mesh_sleep_end(c->mesh);
    }
}

void set_destroy(struct set *set)
{
    if (!set)
        return;
    if (set->circle.mesh) {
        circle_dissolve(&set->circle);
        circle_fini(&set->circle);
    }
    boot_fini(&set->boot);
    free(set->ranks);
    free(set);
}
