/* SPDX-License-Identifier: Apache-2.0
 *
 * dial: see dial.h.
 */
#include "core/transport/dial.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/transport/auth.h"
#include "core/transport/link_private.h"
#include "core/transport/listener.h"
#include "core/transport/net.h"
#include "core/transport/verdict.h"

#define HEAD_START_NS (300 * CLOCK_MS)
#define DIAL_NS       (30 * CLOCK_S)
#define BACKOFF_NS    (50 * CLOCK_MS)
#define BACKOFF_MAX   (1 * CLOCK_S)
#define REFUSALS      4
#define MAX_OWN       64

struct attempt {
    struct net_watch watch; /* fd -1: not begun, or over */
    struct dial *dial;
    struct sock_addr addr;
    struct auth auth;
    bool shaking; /* connected, in the handshake */
};

struct dial {
    struct list node;
    struct link *link;
    struct attempt attempts[SOCK_MAX_ADDRS];
    size_t n, begun; /* attempts[0..begun) were started in this round */
    size_t refused;  /* attempts of this round that were refused: no process listens there */
    unsigned rounds_refused;
    uint64_t backoff, next_at, deadline;
    int last_rc;
    char last[160]; /* why the last attempt failed */
};

static bool same_place(const struct card *a, const struct card *b)
{
    return a->netns && a->netns == b->netns && memcmp(a->boot_id, b->boot_id, 16) == 0;
}

size_t dial_order(const struct card *mine, const struct card *peer, const struct sock_addr *own,
                  size_t nown, struct sock_addr *ret)
{
    bool here = same_place(mine, peer);
    size_t n = 0;
    for (int near = 1; near >= 0; near--) {
        for (size_t i = 0; i < peer->naddrs; i++) {
            const struct sock_addr *a = &peer->addrs[i];
            bool mine_too = false, in_network = false;
            for (size_t k = 0; k < nown; k++) {
                mine_too |= sock_same_ip(&own[k], a);
                in_network |= sock_in_network(&own[k], a);
            }
            /* A bridge address that both hosts have would lead back to this host. */
            if (!here && (mine_too || sock_is_loopback(a)))
                continue;
            if (in_network == (bool)near)
                ret[n++] = *a;
        }
    }
    return n;
}

static void dial_end(struct mesh_net *net, struct dial *d)
{
    for (size_t i = 0; i < d->begun; i++)
        net_unwatch(net, &d->attempts[i].watch);
    list_remove(&d->node);
    free(d);
}

static void give_up(struct mesh_net *net, struct dial *d)
{
    char text[256];
    struct link *link = d->link;
    snprintf(text, sizeof(text), "cannot connect to rank %d: %s", net_name(net, link->peer),
             d->last);
    link->gone = true;
    int rc = d->last_rc;
    dial_end(net, d);
    if (fd_limit_reached(rc))
        verdict_out_of(net, rc);
    else
        verdict_unreachable(net, link->peer, text);
}

/* Every attempt of the round has failed. */
static void round_over(struct mesh_net *net, struct dial *d)
{
    uint64_t now = clock_ns();
    d->rounds_refused = d->refused == d->n ? d->rounds_refused + 1 : 0;
    if (d->n == 0 || now >= d->deadline || d->rounds_refused >= REFUSALS) {
        give_up(net, d);
        return;
    }
    d->begun = d->refused = 0;
    d->next_at = now + d->backoff;
    d->backoff = d->backoff * 2 > BACKOFF_MAX ? BACKOFF_MAX : d->backoff * 2;
    net_timer_at(net, d->next_at);
}

static bool any_under_way(const struct dial *d)
{
    for (size_t i = 0; i < d->begun; i++)
        if (d->attempts[i].watch.fd >= 0)
            return true;
    return false;
}

static void failed(struct mesh_net *net, struct attempt *a, const char *why, int rc)
{
    struct dial *d = a->dial;
    char text[SOCK_TEXT_MAX];
    net_unwatch(net, &a->watch);
    snprintf(d->last, sizeof(d->last), "%s %s", sock_text(&a->addr, text), why);
    d->last_rc = rc;
    log_debug("rank %d at %s", d->link->peer, d->last);
    if (rc == -ECONNREFUSED)
        d->refused++;
    /* The next attempt starts now, without waiting for the rest of the head start. */
    d->next_at = clock_ns();
    net_timer_at(net, d->next_at);
}

static void won(struct mesh_net *net, struct attempt *a)
{
    struct dial *d = a->dial;
    struct link *link = d->link;
    int rc = auth_go(a->watch.fd);
    if (rc < 0) {
        failed(net, a, "closed the connection in the handshake", rc);
        return;
    }
    char text[SOCK_TEXT_MAX];
    log_line(LOG_INFO, "rank %d is at %s", net_name(net, link->peer), sock_text(&a->addr, text));
    int fd = net_release(net, &a->watch);
    dial_end(net, d);
    link_established(link, fd);
}

static void attempt_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct attempt *a = (struct attempt *)(void *)((char *)w - offsetof(struct attempt, watch));
    struct err err = {0};
    int rc;
    if (!a->shaking) {
        rc = sock_connected(w->fd);
        if (rc == 1)
            return;
        if (rc < 0) {
            failed(net, a, strerror(-rc), rc);
            return;
        }
        a->shaking = true;
    }
    rc = auth_progress(&a->auth, w->fd, &err);
    if (rc == 0)
        won(net, a);
    else if (rc < 0)
        failed(net, a, err_text(&err), rc);
}

static void begin(struct mesh_net *net, struct attempt *a)
{
    struct dial *d = a->dial;
    const struct auth_id id = {.cls = (uint8_t)d->link->cls,
                               .epoch = net->mesh->epoch,
                               .size = (uint32_t)net->mesh->size,
                               .from = (uint32_t)net->mesh->rank,
                               .to = (uint32_t)d->link->peer};
    a->shaking = false;
    a->watch = (struct net_watch){.fd = sock_connect(&a->addr), .ready = attempt_ready};
    if (a->watch.fd < 0) {
        int rc = a->watch.fd;
        a->watch.fd = -1;
        if (fd_limit_reached(rc) && net->elastic) /* the other ranks continue without this one */
            verdict_out_of(net, rc);
        failed(net, a, strerror(-rc), rc);
        return;
    }
    auth_connect(&a->auth, net->key, &id, d->deadline);
    int rc = net_watch(net, &a->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    if (rc < 0)
        failed(net, a, strerror(-rc), rc);
}

int dial_start(struct link *link)
{
    struct mesh_net *net = link->net;
    struct sock_addr own[MAX_OWN], order[SOCK_MAX_ADDRS];
    struct dial *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->n = dial_order(&net->listener->card, &net->cards[link->peer], own, sock_own(own, MAX_OWN),
                      order);
    d->link = link;
    d->backoff = BACKOFF_NS;
    d->deadline = clock_ns() + DIAL_NS;
    d->next_at = clock_ns();
    snprintf(d->last, sizeof(d->last), "it listens on no address that this rank could reach");
    for (size_t i = 0; i < d->n; i++) {
        d->attempts[i].dial = d;
        d->attempts[i].addr = order[i];
        d->attempts[i].watch.fd = -1;
    }
    list_append(&net->dials, &d->node);
    net_timer_at(net, d->next_at);
    return 0;
}

static void dial_turn(struct mesh_net *net, struct dial *d, uint64_t now)
{
    if (now >= d->deadline) {
        give_up(net, d);
        return;
    }
    net_timer_at(net, d->deadline);
    if (now < d->next_at) {
        net_timer_at(net, d->next_at);
        return;
    }
    if (d->begun < d->n) {
        struct attempt *a = &d->attempts[d->begun++];
        d->next_at = now + HEAD_START_NS;
        net_timer_at(net, d->next_at);
        begin(net, a);
    } else if (!any_under_way(d)) {
        round_over(net, d);
    }
}

void dial_tick(struct mesh_net *net, uint64_t now)
{
    list_for_each(pos, tmp, &net->dials) dial_turn(net, list_entry(pos, struct dial, node), now);
}

void dial_fini(struct mesh_net *net)
{
    list_for_each(pos, tmp, &net->dials) dial_end(net, list_entry(pos, struct dial, node));
}

void dial_after_fork(struct mesh_net *net)
{
    list_for_each(pos, tmp, &net->dials)
    {
        struct dial *d = list_entry(pos, struct dial, node);
        for (size_t i = 0; i < d->n; i++) {
            if (d->attempts[i].watch.fd >= 0)
                close(d->attempts[i].watch.fd);
            d->attempts[i].watch.fd = -1;
        }
    }
}
