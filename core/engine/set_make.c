/* SPDX-License-Identifier: Apache-2.0
 *
 * set_make: makes a set. Each step ends with a vote of the whole world, so that all ranks go on, or
 * all of them stop with the same error:
 *
 *   1. All ranks have asked for the same set, and its members have opened sockets.
 *   2. The members have each other's cards.
 *   3. The members have made a mesh, and a circle of it.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/sock.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/set_call.h"
#include "core/engine/sets.h"
#include "core/engine/vote.h"

/* connection setup among members that are all known to be alive; or HVD_START_TIMEOUT, if that is
 * shorter */
#define MEET_MS  10000
#define LEAVE_MS 5000 /* how long a set's last rank is waited for */
/* a card and its length: see card.h */
#define CARD_BYTES (2 + 128 + 20 * SOCK_MAX_ADDRS)

/* ---- what is asked for ---------------------------------------------------------------------- */

/* err: the same on all ranks, since all have asked for the same. mine: a failure of this rank. */
static int check(const int *ranks, int n, int size, struct err *mine, struct err *err)
{
    if (n < 1)
        return err_set(err, EINVAL, "hvd_set_add: a set has at least one rank");
    auto_free bool *in = calloc((size_t)size, sizeof(*in));
    if (!in)
        return err_set(mine, ENOMEM, "no memory for a set");
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= size)
            return err_set(err, EINVAL, "hvd_set_add: there is no rank %d in a job of %d", ranks[i],
                           size);
        if (in[ranks[i]])
            return err_set(err, EINVAL, "hvd_set_add: rank %d is named twice", ranks[i]);
        in[ranks[i]] = true;
    }
    return 0;
}

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
    set->rank = -1;
    for (int i = 0; i < n; i++)
        if (ranks[i] == e->circle.rank)
            set->rank = i;
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

/* ---- the steps ------------------------------------------------------------------------------ */

/* A set in the making. */
struct making {
    struct vote vote;
    int rank; /* this rank's number in the world */
    struct set *set;
    struct mesh_listener *listener; /* on members */
    struct buf card;
    uint8_t
        *cards; /* [size * CARD_BYTES] a card's length (2 bytes) and the card, for each member */
    struct err mine; /* why this rank cannot go on */
};

/* Memory for the cards, so that taking them cannot fail any more. */
static int make_room(struct making *m, struct set *set)
{
    size_t n = (size_t)set->size;
    m->cards = calloc(n, CARD_BYTES);
    if (!m->cards)
        return err_set(&m->mine, ENOMEM, "no memory for %zu cards", n);
    int rc = set->rank >= 0 ? boot_make_cards(&set->boot, false, &m->mine) : 0;
    for (size_t i = 0; rc == 0 && set->rank >= 0 && i < n; i++)
        if (!buf_reserve(&set->boot.cards[i], CARD_BYTES))
            rc = err_set(&m->mine, ENOMEM, "no memory for %zu cards", n);
    return rc;
}

static void open_sockets(struct making *m, struct engine *e, const int *ranks, int n)
{
    struct set *set = m->set = new_set(e, ranks, n, &m->mine);
    if (!set || make_room(m, set) < 0 || set->rank < 0 || sets_need_fds(e, n, &m->mine) < 0)
        return;
    mesh_listen_within(e->circle.mesh, &set->boot, &m->listener, &m->card, &m->mine);
    if (m->card.len > CARD_BYTES - 2)
        err_set(&m->mine, E2BIG, "a card of %zu bytes", m->card.len);
}

static int exchange_cards(struct making *m, struct err *err)
{
    struct set *set = m->set;
    size_t n = (size_t)set->size;
    if (set->rank >= 0) {
        uint8_t *own = m->cards + (size_t)set->rank * CARD_BYTES;
        own[0] = (uint8_t)m->card.len;
        own[1] = (uint8_t)(m->card.len >> 8);
        memcpy(own + 2, m->card.data, m->card.len);
    }
    int rc = vote_union(&m->vote, m->cards, n * CARD_BYTES, err);
    for (size_t i = 0; rc == 0 && set->rank >= 0 && i < n; i++) {
        const uint8_t *from = m->cards + i * CARD_BYTES;
        size_t len = (size_t)(from[0] | from[1] << 8);
        buf_put(&set->boot.cards[i], from + 2, len < CARD_BYTES - 2 ? len : CARD_BYTES - 2);
    }
    return rc;
}

static int open_circle(struct set *set, struct mesh_listener *listener, struct err *err)
{
    struct circle *c = &set->circle;
    uint64_t limit = c->engine->set.start_timeout_ms;
    limit = limit < MEET_MS ? limit : MEET_MS;
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

static int connect_members(struct making *m, struct err *err)
{
    inject_point("set");
    if (m->set->rank >= 0)
        open_circle(m->set, TAKE(m->listener), &m->mine);
    if (m->mine.code == 0)
        sets_prepare(m->vote.engine, m->set, &m->mine);
    engine_explain(&m->mine);
    return vote_well(&m->vote, m->rank, &m->mine, err);
}

static int make(struct making *m, const int *ranks, int n, struct err *err)
{
    struct engine *e = m->vote.engine;
    struct err wrong = {0};
    struct set_call call;
    set_call_add(&call, ranks, n);
    if (check(ranks, n, e->circle.size, &m->mine, &wrong) == 0)
        open_sockets(m, e, ranks, n);
    engine_explain(&m->mine);
    int rc = set_call_compare(&m->vote, &call, m->rank, &m->mine, err);
    if (rc == 0 && wrong.code) {
        *err = wrong; /* on all ranks, because all have asked for the same */
        return wrong.code;
    }
    if (rc == 0)
        rc = exchange_cards(m, err);
    return rc == 0 ? connect_members(m, err) : rc;
}

int set_make(struct engine *e, const int *ranks, int n, struct set **ret, struct err *err)
{
    struct making m = {.vote = {.engine = e, .name = SET_CALL_NAME}, .rank = e->circle.rank};
    int rc = make(&m, ranks, n, err);
    mesh_listener_destroy(m.listener);
    buf_fini(&m.card);
    free(m.cards);
    if (rc < 0 && m.set)
        sets_take_back(e, m.set);
    if (rc < 0)
        set_destroy(m.set);
    else
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
