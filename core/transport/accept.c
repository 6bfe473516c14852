/* SPDX-License-Identifier: Apache-2.0
 *
 * accept: see accept.h.
 */
#include "core/transport/accept.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/sock.h"
#include "core/transport/auth.h"
#include "core/transport/link_private.h"
#include "core/transport/listener.h"
#include "core/transport/local.h"
#include "core/transport/net.h"
#include "core/transport/verdict.h"

#define HANDSHAKE_NS       (5 * CLOCK_S)
#define SPARE_PENDING      64
#define ACCEPT_RETRY_NS    (100 * CLOCK_MS)
#define STARVED_NS         (10 * CLOCK_S)
#define STARVED_ELASTIC_NS (500 * CLOCK_MS)

struct pending {
    struct net_watch watch;
    struct list node;
    struct auth auth;
    bool local;
    char from[SOCK_TEXT_MAX];
};

static void drop(struct mesh_net *net, struct pending *p)
{
    list_remove(&p->node);
    net->npending--;
    net_unwatch(net, &p->watch);
    free(p);
}

static void refuse(struct mesh_net *net, struct pending *p, const char *why)
{
    net_refuse(net, p->from, why);
    drop(net, p);
}

/* Whether a connection for this class comes from that side: see mesh_link(). */
static bool fits_class(const struct mesh_net *net, const struct auth_id *id)
{
    if (id->cls == LINK_SEND)
        return (int)id->from != net->mesh->rank;
    return id->cls < LINK_SEND && (int)id->from < net->mesh->rank;
}

/* What the peer sends, this rank receives. */
static enum link_class class_here(uint8_t cls)
{
    return cls == LINK_SEND ? LINK_RECV : (enum link_class)cls;
}

/* The peer has proven itself: the connection is used for its purpose. */
static void adopt(struct mesh_net *net, struct pending *p)
{
    struct auth_id id = p->auth.id;
    bool fits = p->local ? id.cls == AUTH_CLASS_LOCAL && local_expects(net, (int)id.from)
                         : fits_class(net, &id);
    struct link *link = NULL;
    if (fits && !p->local) {
        link = link_get(net, (int)id.from, class_here(id.cls));
        fits = link && link_expects(link);
    }
    if (!fits) {
        refuse(net, p, "is not expected here");
        return;
    }
    auto_close int fd = net_release(net, &p->watch);
    drop(net, p);
    if (link)
        link_established(link, take_fd(&fd));
    else
        local_accepted(net, (int)id.from, take_fd(&fd));
}

static void pending_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct pending *p = (struct pending *)(void *)((char *)w - offsetof(struct pending, watch));
    struct err err = {0};
    int rc = auth_progress(&p->auth, p->watch.fd, &err);
    if (rc == 1) {
        net_timer_at(net, p->auth.deadline); /* it is later for a peer that has proven the key */
        return;
    }
    if (rc == 0)
        adopt(net, p);
    else if (rc == -ECONNRESET && auth_left_politely(&p->auth))
        drop(net, p);
    else
        refuse(net, p, err_text(&err));
}

/* Under a flood of connections the oldest one of a stranger is closed: an honest peer needs a
 * millisecond, and tries again. */
static void make_room(struct mesh_net *net)
{
    if (net->npending < SPARE_PENDING + net->mesh->size)
        return;
    list_for_each(pos, tmp, &net->pending)
    {
        struct pending *p = list_entry(pos, struct pending, node);
        if (!auth_has_proven(&p->auth)) {
            refuse(net, p, "was one of too many pending connections");
            return;
        }
    }
}

static int same_user(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || cred.uid != geteuid())
        return -EACCES;
    return 0;
}

static void name_peer(int fd, char *text)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } k;
    socklen_t len = sizeof(k);
    struct sock_addr a = {0};
    memset(&k, 0, sizeof(k));
    snprintf(text, SOCK_TEXT_MAX, "a local socket");
    if (getpeername(fd, &k.any, &len) < 0)
        return;
    a.family = (uint8_t)k.any.sa_family;
    if (a.family == AF_INET)
        memcpy(a.ip, &k.v4.sin_addr, 4);
    else if (a.family == AF_INET6)
        memcpy(a.ip, &k.v6.sin6_addr, 16);
    if (a.family == AF_INET || a.family == AF_INET6)
        sock_text(&a, text);
}

/* *spare: memory for the pending connection; NULL afterwards if it was used. */
static int take_in(struct mesh_net *net, int fd_in, bool local, struct pending **spare)
{
    auto_close int fd = fd_in;
    char from[SOCK_TEXT_MAX];
    name_peer(fd, from);
    if (local && same_user(fd) < 0) {
        net_refuse(net, from, "belongs to another user");
        return 0;
    }
    make_room(net);
    struct pending *p = TAKE(*spare);
    const struct auth_id expect = {.epoch = net->mesh->epoch,
                                   .size = (uint32_t)net->mesh->size,
                                   .to = (uint32_t)net->mesh->rank};
    uint64_t deadline = clock_ns() + HANDSHAKE_NS;
    auth_accept(&p->auth, net->key, &expect, deadline);
    p->local = local;
    memcpy(p->from, from, sizeof(from));
    p->watch = (struct net_watch){.fd = take_fd(&fd), .ready = pending_ready};
    list_append(&net->pending, &p->node);
    net->npending++;
    int rc = net_watch(net, &p->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    if (rc < 0) {
        drop(net, p);
        return rc;
    }
    pending_ready(net, &p->watch, 0);
    return 0;
}

/* Returns whether a peer still has to connect. A waiting connection may come from another process,
 * too. */
static bool awaits_peer(const struct mesh_net *net)
{
    if (!net->met)
        return true;
    bool awaits = false;
    for (int i = 0; i < net->mesh->size * LINK_CLASSES && !awaits; i++) {
        const struct link *link = net->links[i];
        awaits = link && link->asked && link_expects(link) && !link_connects(link);
    }
    return awaits;
}

/* Connections wait until this process has free descriptors. The connecting peer waits as long as it
 * can, and in an elastic job all other ranks wait with it. */
static void starved(struct mesh_net *net, int rc)
{
    uint64_t now = clock_ns();
    if (!fd_limit_reached(rc) || !awaits_peer(net))
        net->starved_since = 0;
    else if (!net->starved_since)
        net->starved_since = now;
    else if (now - net->starved_since >= (net->elastic ? STARVED_ELASTIC_NS : STARVED_NS))
        verdict_out_of(net, rc);
}

static void accept_all(struct mesh_net *net, struct net_watch *w, bool local)
{
    auto_free struct pending *spare = NULL;
    for (;;) {
        /* Allocates before accepting: a peer whose connection is accepted and then dropped may
         * not come again. */
        if (!spare)
            spare = calloc(1, sizeof(*spare));
        int fd = spare ? accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        int rc = !spare ? -ENOMEM : fd < 0 ? -errno : 0;
        if (rc == -EINTR || rc == -ECONNABORTED)
            continue;
        if (rc == -EAGAIN)
            return;
        if (rc == 0)
            rc = take_in(net, fd, local, &spare);
        if (rc == 0)
            net->starved_since = 0;
        if (rc < 0) {
            starved(net, rc);
            /* Out of descriptors or memory: epoll reports no new edge for connections that wait
             * already. */
            net->accept_again = true;
            net_timer_at(net, clock_ns() + ACCEPT_RETRY_NS);
            return;
        }
    }
}

void accept_tcp_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    accept_all(net, w, false);
}

void accept_unix_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    accept_all(net, w, true);
}

void accept_tick(struct mesh_net *net, uint64_t now)
{
    list_for_each(pos, tmp, &net->pending)
    {
        struct pending *p = list_entry(pos, struct pending, node);
        if (p->auth.deadline > now)
            net_timer_at(net, p->auth.deadline);
        else
            pending_ready(net, &p->watch, 0);
    }
    if (!net->accept_again)
        return;
    net->accept_again = false;
    for (size_t i = 0; i < net->listener->ntcp; i++)
        accept_all(net, &net->listener->tcp[i], false);
    if (net->listener->local.fd >= 0)
        accept_all(net, &net->listener->local, true);
}

void accept_fini(struct mesh_net *net)
{
    list_for_each(pos, tmp, &net->pending) drop(net, list_entry(pos, struct pending, node));
}

void accept_after_fork(struct mesh_net *net)
{
    list_for_each(pos, tmp, &net->pending)
    {
        struct pending *p = list_entry(pos, struct pending, node);
        close(p->watch.fd);
        p->watch.fd = -1;
    }
}
