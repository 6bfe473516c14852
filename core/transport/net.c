/* SPDX-License-Identifier: Apache-2.0
 *
 * net: see net.h.
 */
#include "core/transport/net.h"

#include <errno.h>
#include <stdio.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/transport/accept.h"
#include "core/transport/dial.h"
#include "core/transport/relay.h"
#include "core/transport/verdict.h"

int net_watch(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct epoll_event ev = {.events = events | EPOLLET, .data.ptr = w};
    return epoll_ctl(net->epoll_fd, EPOLL_CTL_ADD, w->fd, &ev) < 0 ? -errno : 0;
}

int net_release(struct mesh_net *net, struct net_watch *w)
{
    int fd = w->fd;
    if (fd < 0)
        return fd;
    for (int i = 0; i < net->nbatch; i++)
        if (net->batch[i].data.ptr == w)
            net->batch[i].data.ptr = NULL;
    epoll_ctl(net->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    w->fd = -1;
    return fd;
}

void net_unwatch(struct mesh_net *net, struct net_watch *w)
{
    int fd = net_release(net, w);
    if (fd >= 0)
        close(fd);
}

void net_timer_at(struct mesh_net *net, uint64_t at)
{
    if (at >= net->timer_at)
        return;
    net->timer_at = at;
    /* A zero value would disarm the timer. */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(at / CLOCK_S), .tv_nsec = (long)(at % CLOCK_S) | 1}};
    timerfd_settime(net->timer.fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void tick(struct mesh_net *net)
{
    uint64_t now = clock_ns();
    if (now < net->timer_at)
        return;
    net->timer_at = UINT64_MAX;
    accept_tick(net, now);
    dial_tick(net, now);
    relay_tick(net);
    verdict_tick(net, now);
}

int net_turn(struct mesh_net *net)
{
    int n;
    do {
        n = epoll_wait(net->epoll_fd, net->batch, NET_BATCH, 0);
        if (n < 0 && errno != EINTR)
            return -errno;
        net->nbatch = n < 0 ? 0 : n;
        for (int i = 0; i < net->nbatch; i++) {
            struct net_watch *w = net->batch[i].data.ptr;
            if (w && w->ready)
                w->ready(net, w, net->batch[i].events);
        }
        net->nbatch = 0;
    } while (n == NET_BATCH);
    if (net->timer_at != UINT64_MAX)
        tick(net);
    return 0;
}

void net_refuse(struct mesh_net *net, const char *from, const char *why)
{
    if (net->refused++ == 0)
        log_warn("refused a connection from %s: it %s (further ones are counted only)", from, why);
    else
        log_debug("refused a connection from %s: it %s", from, why);
}

void net_rank_list(const struct mesh_net *net, const bool *in, char *text, size_t text_size)
{
    size_t len = 0;
    int more = 0;
    text[0] = '\0';
    for (int r = 0; r < net->mesh->size; r++) {
        if (!in[r])
            continue;
        if (len + 24 >= text_size) {
            more++;
            continue;
        }
        len += (size_t)snprintf(text + len, text_size - len, "%s%d", len ? ", " : "",
                                net_name(net, r));
    }
    if (more)
        snprintf(text + len, text_size - len, " and %d more", more);
}
