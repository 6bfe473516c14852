/* SPDX-License-Identifier: Apache-2.0
 *
 * relay: see relay.h.
 */
#include "core/transport/relay.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/transport/listener.h"
#include "core/transport/shm.h"
#include "core/transport/verdict.h"

/* How a local connection ended, as a text after "rank N ". */
static const char *end_text(int rc)
{
    if (rc == -ECONNRESET)
        return "ended without saying goodbye";
    return "sent malformed data over the local socket";
}

static void put_share(struct buf *out, const struct mesh *mesh, int from, uint16_t what,
                      const void *body, size_t len)
{
    buf_put_u32(out, mesh->epoch);
    buf_put_u32(out, (uint32_t)from);
    buf_put_u16(out, what);
    if (len)
        buf_put(out, body, len);
}

/* If the kernel refused to pass the descriptors, relay_tick() tries again. All other errors also
 * show as the end of the socket. */
static void after_send(struct mesh_net *net, const struct ctl *c, int rc)
{
    if (c->refused_since)
        net_timer_at(net, clock_ns() + CTL_RETRY_MS * CLOCK_MS);
    if (verdict_is_own(rc))
        verdict_out_of(net, rc);
    else if (rc < 0)
        log_debug("local frame: %s", strerror(-rc));
}

/* Sends to every connected seat but one; only on the lowest rank. */
static void to_spokes(struct mesh_net *net, int except, const struct buf *share, const int *fds,
                      size_t nfds)
{
    struct local *l = net->local;
    for (int i = 0; i < l->n; i++) {
        struct ctl *c = &l->spokes[i].ctl;
        if (i != except && l->spokes[i].watch.fd >= 0)
            after_send(net, c, ctl_send(c, CTL_SHARE, share, fds, nfds));
    }
}

void relay_tick(struct mesh_net *net)
{
    struct local *l = net->local;
    if (!l)
        return;
    if (l->by_agent && net->agent_watch.fd >= 0 && net->agent->refused_since)
        after_send(net, net->agent, ctl_flush(net->agent));
    for (int i = 0; i < l->n; i++)
        if (l->spokes[i].watch.fd >= 0 && l->spokes[i].ctl.refused_since)
            after_send(net, &l->spokes[i].ctl, ctl_flush(&l->spokes[i].ctl));
}

int relay_send(struct mesh_net *net, enum local_what what, const struct buf *body, const int *fds,
               size_t nfds)
{
    struct local *l = net->local;
    struct buf share = {0};
    struct ctl *c = NULL;
    int rc = 0;
    put_share(&share, net->mesh, net->mesh->rank, (uint16_t)what, body->data, body->len);
    if (l->by_agent && net->agent_watch.fd >= 0)
        c = net->agent;
    else if (!l->by_agent && l->watch.fd >= 0 && l->proven)
        c = &l->ctl;
    if (share.failed)
        verdict_out_of(net, rc = -ENOMEM);
    else if (!l->by_agent && l->seat == 0)
        to_spokes(net, -1, &share, fds, nfds);
    else if (c)
        after_send(net, c, rc = ctl_send(c, CTL_SHARE, &share, fds, nfds));
    buf_fini(&share);
    return rc;
}

/* Sends to one seat, or to all (-1). */
static int send_to(struct mesh_net *net, int seat, enum local_what what, const struct buf *body,
                   const int *fds, size_t nfds)
{
    struct buf share = {0};
    if (body->failed)
        return -ENOMEM;
    if (seat < 0)
        return relay_send(net, what, body, fds, nfds);
    put_share(&share, net->mesh, net->mesh->rank, (uint16_t)what, body->data, body->len);
    struct ctl *c = &net->local->spokes[seat].ctl;
    int rc = share.failed ? -ENOMEM : ctl_send(c, CTL_SHARE, &share, fds, nfds);
    after_send(net, c, rc);
    buf_fini(&share);
    return rc;
}

int relay_segment(struct mesh_net *net, int seat)
{
    struct local *l = net->local;
    struct buf body = {0};
    int rc = 0;
    for (int first = 0; first < l->n && rc >= 0; first += FD_MAX_PASSED) {
        int n = l->n - first < FD_MAX_PASSED ? l->n - first : FD_MAX_PASSED;
        buf_reset(&body);
        buf_put_u32(&body, (uint32_t)first);
        rc = send_to(net, seat, LOCAL_BELLS, &body, l->shm->doorbells + first, (size_t)n);
    }
    buf_reset(&body);
    buf_put(&body, l->token, sizeof(l->token));
    buf_put_u32(&body, (uint32_t)l->n);
    if (rc >= 0)
        rc = send_to(net, seat, LOCAL_SEGMENT, &body, &l->shm->fd, 1);
    buf_fini(&body);
    return rc;
}

/* Parses a CTL_SHARE; closes descriptors that were not taken. from: -1: the frame names the
 * sender. */
static void take_share(struct mesh_net *net, int from, struct ctl_frame *f)
{
    struct reader r = reader_over(f->body, f->len);
    uint32_t epoch = reader_u32(&r);
    uint32_t says = reader_u32(&r);
    uint16_t what = reader_u16(&r);
    if (!r.failed && epoch == net->mesh->epoch && says < (uint32_t)net->mesh->size &&
        (from < 0 || from == (int)says))
        local_handle(net, (int)says, what, f->body + r.pos, f->len - r.pos, f->fds, f->nfds);
    for (size_t i = 0; i < f->nfds; i++)
        if (f->fds[i] >= 0)
            close(f->fds[i]);
}

static uint32_t says_from(const struct ctl_frame *f)
{
    struct reader r = reader_over(f->body, f->len);
    reader_u32(&r);
    return reader_u32(&r);
}

void local_from_agent(struct mesh_net *net, struct ctl_frame *frame)
{
    if (net->local) {
        take_share(net, -1, frame);
        return;
    }
    for (size_t i = 0; i < frame->nfds; i++)
        close(frame->fds[i]);
}

/* ---- the lowest rank ---- */

static void spoke_ended(struct mesh_net *net, int seat, int rc)
{
    struct local *l = net->local;
    struct spoke *s = &l->spokes[seat];
    net_unwatch(net, &s->watch);
    ctl_fini(&s->ctl);
    if (verdict_is_own(rc))
        verdict_out_of(net, rc);
    else
        verdict_dead(net, l->ranks[seat], end_text(rc));
}

static void spoke_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct local *l = net->local;
    struct spoke *s = (struct spoke *)(void *)((char *)w - offsetof(struct spoke, watch));
    int seat = (int)(s - l->spokes);
    struct ctl_frame f;
    int rc = ctl_flush(&s->ctl);
    while (rc >= 0 && (rc = ctl_recv(&s->ctl, &f)) == 0) {
        if (f.type == CTL_SHARE) {
            struct buf share = {.data = (uint8_t *)f.body, .len = f.len};
            if (says_from(&f) == (uint32_t)l->ranks[seat])
                to_spokes(net, seat, &share, f.fds, f.nfds);
            take_share(net, l->ranks[seat], &f);
            continue;
        }
        for (size_t i = 0; i < f.nfds; i++)
            close(f.fds[i]);
    }
    if (rc < 0)
        spoke_ended(net, seat, rc);
}

bool local_expects(const struct mesh_net *net, int rank)
{
    const struct local *l = net->local;
    if (!l || l->seat != 0 || l->by_agent)
        return false;
    int seat = local_seat_of(l, rank);
    return seat > 0 && l->spokes[seat].watch.fd < 0 && !l->spokes[seat].watch.ready;
}

/* Sends to a seat that has just connected: the doorbells and the segment or, if the ranks cannot
 * share memory, the reason. */
static void catch_up(struct mesh_net *net, int seat)
{
    struct local *l = net->local;
    struct spoke *s = &l->spokes[seat];
    int rc = l->failed || !l->shm ? -ENOTSUP : relay_segment(net, seat);
    if (rc < 0 && rc != -ENOMEM) {
        struct buf body = {0}, share = {0};
        buf_put_str(&body, l->why);
        put_share(&share, net->mesh, net->mesh->rank, LOCAL_FAILED, body.data, body.len);
        rc = body.failed ? -ENOMEM : ctl_send(&s->ctl, CTL_SHARE, &share, NULL, 0);
        buf_fini(&body);
        buf_fini(&share);
    }
    if (rc == -ENOMEM)
        verdict_out_of(net, -ENOMEM);
}

void local_accepted(struct mesh_net *net, int rank, int fd)
{
    struct local *l = net->local;
    int seat = local_seat_of(l, rank);
    struct spoke *s = &l->spokes[seat];
    s->watch = (struct net_watch){.fd = fd, .ready = spoke_ready};
    ctl_init(&s->ctl, fd);
    if (net_watch(net, &s->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP) < 0) {
        net_unwatch(net, &s->watch);
        return;
    }
    catch_up(net, seat);
    spoke_ready(net, &s->watch, 0);
}

/* ---- the other ranks ---- */

static void hub_unusable(struct mesh_net *net, const char *why)
{
    struct local *l = net->local;
    log_debug("no local connection to rank %d: %s", l->ranks[0], why);
    net_unwatch(net, &l->watch);
    l->failed = true;
}

static void hub_frames(struct mesh_net *net)
{
    struct local *l = net->local;
    struct ctl_frame f;
    int rc = ctl_flush(&l->ctl);
    while (rc >= 0 && (rc = ctl_recv(&l->ctl, &f)) == 0) {
        if (f.type == CTL_SHARE) {
            take_share(net, -1, &f);
            continue;
        }
        for (size_t i = 0; i < f.nfds; i++)
            close(f.fds[i]);
    }
    if (rc >= 0)
        return;
    net_unwatch(net, &l->watch);
    verdict_look_for_goodbyes(net);
    /* The lowest rank was the path to the other ranks, too: after its goodbye none of them can be
     * heard any more. */
    for (int i = 0; i < l->n; i++)
        if (net->left[l->ranks[0]])
            net->left[l->ranks[i]] = true;
    if (verdict_is_own(rc))
        verdict_out_of(net, rc);
    else
        verdict_dead(net, l->ranks[0], end_text(rc));
}

static void hub_ready(struct mesh_net *net, struct net_watch *w, uint32_t events)
{
    struct local *l = net->local;
    struct err err = {0};
    if (!l->proven) {
        int rc = auth_progress(&l->auth, w->fd, &err);
        if (rc == 1)
            return;
        if (rc == 0)
            rc = auth_go(w->fd);
        if (rc < 0) {
            hub_unusable(net, err_text(&err));
            return;
        }
        l->proven = true;
    }
    hub_frames(net);
}

void relay_dial(struct mesh_net *net)
{
    struct local *l = net->local;
    const struct auth_id id = {.cls = AUTH_CLASS_LOCAL,
                               .epoch = net->mesh->epoch,
                               .size = (uint32_t)net->mesh->size,
                               .from = (uint32_t)net->mesh->rank,
                               .to = (uint32_t)l->ranks[0]};
    int fd = listener_dial_local(&net->cards[l->ranks[0]]);
    if (fd_limit_reached(fd))
        verdict_out_of(net, fd);
    if (fd < 0) {
        hub_unusable(net, strerror(-fd));
        return;
    }
    l->watch = (struct net_watch){.fd = fd, .ready = hub_ready};
    ctl_init(&l->ctl, fd);
    auth_connect(&l->auth, net->key, &id, l->deadline);
    int rc = net_watch(net, &l->watch, EPOLLIN | EPOLLOUT | EPOLLRDHUP);
    if (rc < 0)
        hub_unusable(net, strerror(-rc));
}

void relay_close(struct mesh_net *net)
{
    struct local *l = net->local;
    for (int i = 0; l->spokes && i < l->n; i++) {
        net_unwatch(net, &l->spokes[i].watch);
        ctl_fini(&l->spokes[i].ctl);
    }
    net_unwatch(net, &l->watch);
    ctl_fini(&l->ctl);
}

void local_after_fork(struct mesh_net *net)
{
    struct local *l = net->local;
    if (!l)
        return;
    for (int i = 0; i < l->n; i++) {
        if (l->spokes[i].watch.fd >= 0)
            close(l->spokes[i].watch.fd);
        if (l->bells[i] >= 0)
            close(l->bells[i]);
        l->spokes[i].watch.fd = l->bells[i] = -1;
    }
    if (l->watch.fd >= 0)
        close(l->watch.fd);
    l->watch.fd = -1;
}
