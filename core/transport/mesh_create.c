/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh_create: makes a mesh from the cards of all ranks, and finds out which ranks share a host.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/log.h"
#include "core/boot/boot.h"
#include "core/transport/agree.h"
#include "core/transport/listener.h"
#include "core/transport/local.h"
#include "core/transport/net.h"
#include "core/transport/shm.h"
#include "core/transport/verdict.h"

#define PEER_TIMEOUT_S 20
#define CANCEL_MS      50 /* how often a mesh within another one looks whether it is given up */

/* Derives a key for this roster alone: the cards contain a random number of each rank. */
static void derive_key(struct mesh_net *net, const struct boot *boot)
{
    static const uint8_t no_key[BOOT_KEY_SIZE];
    uint32_t world[] = {boot->epoch, (uint32_t)boot->size};
    struct mac_part parts[] = {{world, sizeof(world)}, {NULL, sizeof(net->key)}};
    uint8_t chain[MAC_SIZE] = {0};
    parts[1].data = chain;
    for (int r = 0; r < boot->size; r++) {
        const struct mac_part link[] = {{chain, sizeof(chain)}, {net->cards[r].uid, CARD_UID_SIZE}};
        mac_make(no_key, "hvd mesh uids 1", link, 2, chain);
    }
    mac_make(boot->has_key ? boot->key : no_key, "hvd mesh 1", parts, 2, net->key);
}

static int read_cards(struct mesh_net *net, const struct boot *boot, struct err *err)
{
    net->cards = calloc((size_t)boot->size, sizeof(struct card));
    if (!net->cards)
        return err_set(err, ENOMEM, "out of memory");
    net->cards[boot->rank] = net->listener->card;
    for (int r = 0; r < boot->size && boot->size > 1; r++) {
        int rc = card_decode(boot->cards[r].data, boot->cards[r].len, &net->cards[r], err);
        if (rc < 0) {
            err_prefix(err, "rank %d", net_name(net, r));
            return rc;
        }
    }
    if (memcmp(net->cards[boot->rank].uid, net->listener->card.uid, CARD_UID_SIZE) != 0)
        return err_set(err, EPROTO, "the launcher mixed up the ranks: card %d is not this rank's",
                       boot->rank);
    return 0;
}

/* Without a key this rank listens on loopback only: fails if a peer is on another host. */
static int check_reach(const struct mesh_net *net, struct err *err)
{
    const struct card *own = &net->cards[net->mesh->rank];
    if (net->has_key || own->naddrs == 0 || !sock_is_loopback(&own->addrs[0]))
        return 0;
    for (int r = 0; r < net->mesh->size; r++) {
        const struct card *c = &net->cards[r];
        if (memcmp(c->boot_id, own->boot_id, sizeof(c->boot_id)) != 0 || c->netns != own->netns)
            return err_set(err, EACCES,
                           "rank %d is on another host and there is no key: give all ranks the "
                           "same HVD_KEY_FILE, or set HVD_INSECURE=1 on a network that is yours",
                           net_name(net, r));
    }
    return 0;
}

static void agent_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct ctl_frame f;
    int rc = ctl_flush(net->agent);
    while (rc >= 0 && (rc = ctl_recv(net->agent, &f)) == 0) {
        if (f.type == CTL_SHARE) {
            local_from_agent(net, &f);
            continue;
        }
        if (f.type == CTL_LOST)
            verdict_told(net, -1, f.body, f.len);
        else if (f.type == CTL_CHANGE)
            boot_heard_change(net->boot, f.body, f.len);
        else if (f.type == CTL_LIFELINE && f.nfds == 1)
            boot_take_lifeline(net->boot, f.fds[0]);
        for (size_t i = 0; i < f.nfds; i++)
            close(f.fds[i]);
    }
    if (rc < 0) {
        net_release(net, w);
        if (verdict_is_own(rc))
            verdict_out_of(net, rc);
        else
            verdict_agent_lost(net);
    }
}

static void wake_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    /* Each write is a new edge: the counter need not be read. */
}

static int open_net(struct mesh_net *net, struct boot *boot, struct err *err)
{
    net->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    net->wake.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    net->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (net->epoll_fd < 0 || net->wake.fd < 0 || net->timer.fd < 0)
        return err_sys(err, errno, "cannot make an epoll set");
    net->wake.ready = net->timer.ready = net->doorbell.ready = wake_ready;
    int rc = net_watch(net, &net->wake, EPOLLIN);
    if (rc == 0)
        rc = net_watch(net, &net->timer, EPOLLIN);
    if (rc == 0)
        rc = listener_start(net);
    if (rc == 0 && boot->agent_fd >= 0) {
        net->agent_watch = (struct net_watch){.fd = boot->agent_fd, .ready = agent_ready};
        if (boot->ctl.fd != boot->agent_fd)
            ctl_init(&boot->ctl, boot->agent_fd);
        net->agent = &boot->ctl;
        rc = net_watch(net, &net->agent_watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    }
    return rc < 0 ? err_sys(err, -rc, "cannot watch a socket") : 0;
}

static int alloc_mesh(struct boot *boot, struct mesh_listener *listener, struct mesh **ret)
{
    struct mesh *mesh = calloc(1, sizeof(*mesh));
    struct mesh_net *net = calloc(1, sizeof(*net));
    if (!mesh || !net) {
        free(mesh);
        free(net);
        mesh_listener_destroy(listener);
        return -ENOMEM;
    }
    mesh->epoch = boot->epoch;
    mesh->generation = 1;
    mesh->rank = boot->rank;
    mesh->size = boot->size;
    mesh->net = net;
    net->mesh = mesh;
    net->listener = listener;
    net->has_key = boot->has_key;
    net->boot = boot;
    net->names = boot->names;
    net->elastic = boot->elastic;
    net->epoll_fd = net->wake.fd = net->timer.fd = net->doorbell.fd = net->agent_watch.fd = -1;
    net->timer_at = UINT64_MAX;
    net->suspect = -1;
    list_init(&net->pending);
    list_init(&net->dials);
    *ret = mesh;
    return 0;
}

static int world_of_one(struct mesh *mesh, struct err *err)
{
    const uint32_t host_of[] = {0};
    return agree_apply(mesh, host_of, err);
}

static int timed_out(struct agree *a, struct mesh_net *net, struct err *err)
{
    char text[256];
    bool *in = calloc((size_t)net->mesh->size, sizeof(bool));
    if (!in)
        return err_set(err, ETIMEDOUT, "the ranks did not find each other in time");
    agree_waiting(a, net, in);
    net_rank_list(net, in, text, sizeof(text));
    free(in);
    return err_set(err, ETIMEDOUT, "rank%s %s did not connect in time",
                   strchr(text, ',') ? "s" : "", text);
}

/* Ranks that wait for ranks of their own host know best which one is missing, then rank 0. The
 * other ranks give them some more time to report. */
static uint64_t patience(const struct agree *a, struct mesh_net *net)
{
    int rank = net->mesh->rank;
    if (net->local && a->first_of[rank] == rank && local_state(net) == 1)
        return 0;
    return (rank == 0 ? 250 : 500) * CLOCK_MS;
}

static int meet(struct mesh *mesh, struct agree *a, uint64_t deadline, struct err *err)
{
    struct mesh_net *net = mesh->net;
    int rc = agree_init(a, net, err);
    if (rc == 0 && a->ngroup > 1)
        rc = local_start(net, a->group, a->ngroup, err);
    while (rc == 0 && (rc = agree_progress(a, net, err)) == 1) {
        struct pollfd p = {.fd = net->epoll_fd, .events = POLLIN};
        uint64_t end = deadline == UINT64_MAX ? deadline : deadline + patience(a, net);
        if (deadline_passed(end))
            return timed_out(a, net, err);
        int left = deadline_poll_ms(end);
        poll(&p, 1, net->names && (left < 0 || left > CANCEL_MS) ? CANCEL_MS : left);
        rc = mesh_progress(mesh, NULL, err);
        if (rc == 0 && net->names)
            rc = net->boot->go_on(net->boot->go_on_ctx, err);
    }
    return rc;
}

static int start(struct mesh *mesh, struct boot *boot, uint64_t deadline, struct err *err)
{
    struct mesh_net *net = mesh->net;
    struct agree agree = {0};
    size_t size = (size_t)mesh->size;
    net->links = calloc(size * LINK_CLASSES, sizeof(struct link *));
    net->left = calloc(size, sizeof(bool));
    mesh->members = boot->members ? calloc(size, sizeof(uint32_t)) : NULL;
    if (!net->links || !net->left || (boot->members && !mesh->members))
        return err_set(err, ENOMEM, "out of memory");
    if (mesh->members)
        memcpy(mesh->members, boot->members, size * sizeof(uint32_t));
    int rc = read_cards(net, boot, err);
    if (rc < 0)
        return rc;
    derive_key(net, boot);
    int64_t silence_s = 0;
    rc = env_int("PEER_TIMEOUT_SECONDS", PEER_TIMEOUT_S, 1, 86400, &silence_s, err);
    net->silence_ms = (uint64_t)silence_s * 1000;
    if (rc == 0)
        rc = check_reach(net, err);
    if (rc == 0)
        rc = open_net(net, boot, err);
    if (rc == 0)
        rc = mesh->size == 1 ? world_of_one(mesh, err) : meet(mesh, &agree, deadline, err);
    if (rc == 0 && mesh->size > 1)
        net_timer_at(net, clock_ns());
    agree_fini(&agree);
    if (rc == 0 && mesh->shm && net->doorbell.fd < 0) {
        net->doorbell.fd = mesh->shm->doorbells[mesh->local_rank];
        rc = net_watch(net, &net->doorbell, EPOLLIN);
        if (rc < 0)
            rc = err_sys(err, -rc, "cannot watch the doorbell");
    }
    return rc;
}

int mesh_create(struct boot *boot, struct mesh_listener *listener, uint64_t deadline,
                struct mesh **ret, struct err *err)
{
    struct mesh *mesh;
    struct err own = {0};
    if (alloc_mesh(boot, listener, &mesh) < 0)
        return err_set(err, ENOMEM, "out of memory");
    int rc = start(mesh, boot, deadline, err ? err : &own);
    if (rc < 0) {
        if (mesh->net->epoll_fd >= 0 && mesh->size > 1)
            verdict_abort(mesh->net, err_text(err ? err : &own));
        mesh_destroy(mesh);
        return rc;
    }
    mesh->net->met = true;
    log_debug("rank %d of %d: host %d of %d, local rank %d of %d", mesh->rank, mesh->size,
              mesh->host, mesh->hosts, mesh->local_rank, mesh->local_size);
    *ret = mesh;
    return 0;
}
