/* SPDX-License-Identifier: Apache-2.0
 *
 * set_make: makes a set. Each step ends with a vote of the whole world, so that all ranks go on, or
 * all of them stop with the same error:
 *
 *   same     all ranks have asked for the same set
 *   listen   its members open sockets
 *   cards    all ranks get the members' cards
 *   connect  its members make a mesh and a circle of it
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/inject.h"
#include "core/base/mac.h"
#include "core/engine/engine.h"
#include "core/engine/failure.h"
#include "core/engine/sets.h"
#include "core/engine/vote.h"

#define MEET_MS  10000 /* connection setup among members that are all known to be alive */
#define LEAVE_MS 5000  /* how long a set's last rank is waited for */

static const char vote_name[] = "hvd.set.add";

/* ---- what is asked for ---------------------------------------------------------------------- */

static bool compare(const struct vote *v, const int *ranks, int n, int *ret_rc, struct err *err)
{
    static const uint8_t no_key[MAC_KEY_SIZE];
    uint8_t mac[MAC_SIZE];
    uint32_t words[1 + MAC_SIZE / 4];
    bool same = false;
    const struct mac_part part = {ranks, (size_t)(n > 0 ? n : 0) * sizeof(*ranks)};
    mac_make(no_key, "hvd set", &part, 1, mac);
    words[0] = n > 0 ? (uint32_t)n : 0;
    memcpy(&words[1], mac, MAC_SIZE);
    *ret_rc = vote_same(v, words, sizeof(words) / sizeof(words[0]), &same, err);
    return same;
}

/* The ranks have asked for different sets: says what rank 0 wants, and the lowest rank that wants
 * something else. */
static int disagree(const struct vote *v, const int *ranks, int n, struct err *err)
{
    const struct circle *world = &v->engine->circle;
    char texts[2][160] = {"", ""}, own[160] = "no rank";
    if (n > 0)
        sets_list_ranks(ranks, n, own, sizeof(own));
    if (world->rank == 0)
        memcpy(texts[0], own, sizeof(own));
    int rc = vote_union(v, (uint8_t *)texts[0], sizeof(texts[0]), err);
    int64_t other = rc == 0 && strcmp(own, texts[0]) != 0 ? INT32_MAX - world->rank : 0;
    if (rc == 0)
        rc = vote_max(v, &other, 1, &other, err);
    int rank = (int)(INT32_MAX - other);
    if (other > 0 && rank == world->rank)
        memcpy(texts[1], own, sizeof(own));
    if (rc == 0)
        rc = vote_union(v, (uint8_t *)texts[1], sizeof(texts[1]), err);
    if (rc < 0)
        return rc;
    if (other == 0)
        return err_set(err, EINVAL, "hvd_set_add: the ranks ask for different sets");
    return err_set(err, EINVAL,
                   "hvd_set_add: the ranks ask for different sets: rank 0 for %.150s, rank %d for "
                   "%.150s",
                   texts[0], rank, texts[1]);
}

/* The same on all ranks, since all have asked for the same. */
static int check(const int *ranks, int n, int size, struct err *err)
{
    if (n < 1)
        return err_set(err, EINVAL, "hvd_set_add: a set has at least one rank");
    auto_free bool *in = calloc((size_t)size, sizeof(*in));
    if (!in)
        return err_set(err, ENOMEM, "no memory for a set");
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
    set->circle.name = set->text;
    set->circle.world_ranks = set->ranks;
    set->boot = (struct boot){.rank = set->rank,
                              .size = n,
                              .epoch = e->boot.epoch,
                              .has_key = e->boot.has_key,
                              .agent_fd = -1};
    memcpy(set->boot.key, e->boot.key, sizeof(set->boot.key));
    return set;
}

/* Gives each member the cards of all. slot: bytes for a card and its length. */
static int exchange(const struct vote *v, struct set *set, const struct buf *card, size_t slot,
                    struct err *err)
{
    size_t n = (size_t)set->size;
    auto_free uint8_t *all = calloc(n, slot);
    struct err mine = {0};
    int rc = all ? 0 : err_set(&mine, ENOMEM, "no memory for %zu cards", n);
    if (rc == 0 && set->rank >= 0)
        rc = boot_make_cards(&set->boot, false, &mine);
    rc = vote_well(v, v->engine->circle.rank, &mine, err);
    if (rc < 0 || !all)
        return rc;
    if (set->rank >= 0) {
        uint8_t *own = all + (size_t)set->rank * slot;
        own[0] = (uint8_t)card->len;
        own[1] = (uint8_t)(card->len >> 8);
        memcpy(own + 2, card->data, card->len);
    }
    rc = vote_union(v, all, n * slot, err);
    for (size_t i = 0; rc == 0 && set->rank >= 0 && i < n; i++) {
        const uint8_t *from = all + i * slot;
        size_t len = (size_t)(from[0] | from[1] << 8);
        buf_put(&set->boot.cards[i], from + 2, len < slot - 2 ? len : slot - 2);
    }
    return rc;
}

/* Opens sockets on the members and tells all ranks how long the longest card is. */
static int listen_all(const struct vote *v, struct set *set, struct mesh_listener **ret,
                      struct buf *card, size_t *ret_longest, struct err *err)
{
    struct err mine = {0};
    if (set->rank >= 0 && mesh_listen(&set->boot, ret, card, &mine) == 0 &&
        card->len > BOOT_CARD_MAX)
        err_set(&mine, E2BIG, "a card of %zu bytes", card->len);
    engine_explain(&mine);
    int rc = vote_well(v, v->engine->circle.rank, &mine, err);
    int64_t longest = (int64_t)card->len;
    if (rc == 0)
        rc = vote_max(v, &longest, 1, &longest, err);
    *ret_longest = (size_t)longest;
    return rc;
}

static int open_circle(struct set *set, struct mesh_listener *listener, struct err *err)
{
    struct circle *c = &set->circle;
    int rc = mesh_create(&set->boot, listener, deadline_in_ms(MEET_MS), &c->mesh, err);
    if (rc < 0)
        return rc;
    boot_drop_cards(&set->boot);
    c->rank = c->mesh->rank;
    c->size = c->mesh->size;
    rc = coll_create(c->mesh, &c->coll, err);
    if (rc == 0)
        rc = world_map_same(&c->map, c->size, err);
    if (rc == 0)
        rc = batches_init(c, err);
    return rc == 0 ? circle_negotiate(c, err) : rc;
}

static int connect_all(const struct vote *v, struct set *set, struct mesh_listener **listener,
                       struct err *err)
{
    struct err mine = {0};
    inject_point("set");
    if (set->rank >= 0)
        open_circle(set, TAKE(*listener), &mine);
    engine_explain(&mine);
    return vote_well(v, v->engine->circle.rank, &mine, err);
}

static int make(const struct vote *v, struct set *set, struct err *err)
{
    struct mesh_listener *listener = NULL;
    struct buf card = {0};
    size_t longest = 0;
    int rc = listen_all(v, set, &listener, &card, &longest, err);
    if (rc == 0)
        rc = exchange(v, set, &card, longest + 2, err);
    if (rc == 0)
        rc = connect_all(v, set, &listener, err);
    mesh_listener_destroy(listener);
    buf_fini(&card);
    return rc;
}

int set_make(struct engine *e, const int *ranks, int n, struct set **ret, struct err *err)
{
    const struct vote v = {.engine = e, .name = vote_name};
    struct err mine = {0};
    int rc = 0;
    if (!compare(&v, ranks, n, &rc, err))
        return rc < 0 ? rc : disagree(&v, ranks, n, err);
    rc = check(ranks, n, e->circle.size, err);
    if (rc < 0)
        return rc;
    struct set *set = new_set(e, ranks, n, &mine);
    rc = vote_well(&v, e->circle.rank, &mine, err);
    if (rc == 0 && set)
        rc = make(&v, set, err);
    if (rc < 0) {
        set_destroy(set);
        return rc;
    }
    *ret = set;
    return 0;
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
