/* SPDX-License-Identifier: Apache-2.0
 *
 * local: see local.h. The meaning of the frames is here, their transport in relay.c.
 */
#include "core/transport/local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/transport/link_private.h"
#include "core/transport/relay.h"
#include "core/transport/shm.h"
#include "core/transport/verdict.h"

#define LOCAL_NS  (5 * CLOCK_S)
#define SPARE_FDS 64 /* descriptors of a rank in addition to its doorbells */

static void give_up(struct mesh_net *net, const char *why)
{
    struct local *l = net->local;
    struct buf body = {0};
    if (l->failed || l->settled)
        return;
    l->failed = true;
    snprintf(l->why, sizeof(l->why), "%s", why);
    buf_put_str(&body, why);
    relay_send(net, LOCAL_FAILED, &body, NULL, 0);
    buf_fini(&body);
    if (l->seat == 0)
        log_warn("%d ranks of this host cannot share memory: %s; they use TCP", l->n, why);
}

/* The ranks of this host use TCP instead of shared memory. Without descriptors TCP would not work
 * either: then this rank fails. */
static void cannot_share(struct mesh_net *net, int rc, const char *why)
{
    if (fd_limit_reached(rc))
        verdict_out_of(net, rc);
    else
        give_up(net, why);
}

int local_seat_of(const struct local *l, int rank)
{
    for (int i = 0; i < l->n; i++)
        if (l->ranks[i] == rank)
            return i;
    return -1;
}

static int make_segment(struct mesh_net *net)
{
    struct local *l = net->local;
    struct err err = {0};
    int rc = l->n > SHM_MAX_SEATS ? err_set(&err, E2BIG, "more than %d ranks", SHM_MAX_SEATS)
                                  : shm_create(l->n, l->token, &l->shm, &err);
    if (rc < 0) {
        cannot_share(net, rc, err_text(&err));
        return rc;
    }
    net->doorbell.fd = l->shm->doorbells[0]; /* the last rank that attaches rings it */
    rc = net_watch(net, &net->doorbell, EPOLLIN);
    if (rc < 0) {
        net->doorbell.fd = -1;
        cannot_share(net, rc, "cannot watch the doorbell");
    }
    return rc;
}

/* Takes the doorbells, which the lowest rank sends in the order of the seats, before the segment.
 */
static void take_bells(struct mesh_net *net, struct reader *r, int *fds, size_t nfds)
{
    struct local *l = net->local;
    uint32_t first = reader_u32(r);
    if (l->seat == 0 || l->failed || !reader_ok(r) || first != (uint32_t)l->nbells ||
        nfds > (size_t)(l->n - l->nbells))
        return;
    for (size_t i = 0; i < nfds; i++) {
        l->bells[l->nbells++] = fds[i];
        fds[i] = -1;
    }
}

static void take_segment(struct mesh_net *net, struct reader *r, int *fds, size_t nfds)
{
    struct local *l = net->local;
    struct err err = {0};
    const uint8_t *token = reader_bytes(r, sizeof(l->token));
    uint32_t seats = reader_u32(r);
    if (l->seat == 0 || l->shm || l->failed || nfds != 1 || !reader_ok(r) ||
        seats != (uint32_t)l->n || l->nbells != l->n)
        return;
    memcpy(l->token, token, sizeof(l->token));
    int memfd = fds[0];
    fds[0] = -1;
    struct shm *shm = NULL;
    int rc = shm_attach(memfd, l->seat, l->n, l->token, &shm, &err);
    if (rc < 0 || !shm) {
        cannot_share(net, rc, err_text(&err));
        return;
    }
    l->shm = shm;
    for (int i = 0; i < l->n; i++) {
        shm_set_doorbell(shm, i, l->bells[i]);
        l->bells[i] = -1;
    }
    /* The segment shows which seats have attached. Only the lowest rank waits for all of them. */
    if (shm_count_attached(shm) == l->n)
        shm_knock(shm, 0);
}

static void take_failed(struct mesh_net *net, struct reader *r)
{
    struct local *l = net->local;
    char why[sizeof(l->why)];
    reader_str(r, why, sizeof(why));
    if (l->seat == 0)
        give_up(net, r->failed ? "another rank cannot" : why);
    else if (!l->settled)
        l->failed = true;
}

void local_handle(struct mesh_net *net, int from, uint16_t what, const void *body, size_t len,
                  int *fds, size_t nfds)
{
    struct local *l = net->local;
    struct reader r = reader_over(body, len);
    int seat = local_seat_of(l, from);
    if (seat < 0 || seat == l->seat)
        return;
    if (what == LOCAL_SEGMENT && seat == 0) {
        take_segment(net, &r, fds, nfds);
    } else if (what == LOCAL_BELLS && seat == 0) {
        take_bells(net, &r, fds, nfds);
    } else if (what == LOCAL_FAILED) {
        take_failed(net, &r);
    } else if (what == LOCAL_MAP && seat == 0) {
        buf_reset(&l->map);
        buf_put(&l->map, body, len);
        if (l->map.failed)
            verdict_out_of(net, -ENOMEM);
    } else if (what == LOCAL_GOODBYE) {
        verdict_goodbye_from(net, from);
    } else if (what == LOCAL_LOST) {
        verdict_told(net, from, body, len);
    }
}

int local_start(struct mesh_net *net, const int *ranks, int n, struct err *err)
{
    struct local *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(err, ENOMEM, "out of memory");
    l->n = n;
    l->watch.fd = -1;
    l->deadline = clock_ns() + LOCAL_NS;
    l->attached = 1;
    l->ranks = calloc((size_t)n, sizeof(int));
    l->bells = malloc((size_t)n * sizeof(int));
    l->spokes = calloc((size_t)n, sizeof(l->spokes[0]));
    for (int i = 0; l->bells && i < n; i++)
        l->bells[i] = -1;
    for (int i = 0; l->spokes && i < n; i++)
        l->spokes[i].watch.fd = -1;
    net->local = l;
    if (!l->ranks || !l->bells || !l->spokes) {
        local_destroy(net);
        return err_set(err, ENOMEM, "out of memory");
    }
    memcpy(l->ranks, ranks, (size_t)n * sizeof(int));
    l->seat = local_seat_of(l, net->mesh->rank);
    (void)fd_limit_need((size_t)n + SPARE_FDS, NULL); /* failure shows later as EMFILE */
    l->by_agent = net->cards[net->mesh->rank].agent != 0;
    net_timer_at(net, l->deadline);
    if (l->seat == 0 && make_segment(net) == 0 && l->by_agent)
        relay_segment(net, -1);
    if (l->seat != 0 && !l->by_agent)
        relay_dial(net);
    return 0;
}

/* A busy machine may start a rank late: LOCAL_NS begins again whenever a rank has attached. */
static bool is_late(struct mesh_net *net)
{
    struct local *l = net->local;
    int attached = l->shm ? shm_count_attached(l->shm) : 0;
    if (attached > l->attached) {
        l->attached = attached;
        l->deadline = clock_ns() + LOCAL_NS;
        net_timer_at(net, l->deadline);
    }
    return clock_ns() >= l->deadline;
}

static bool all_here(const struct local *l)
{
    return l->settled || (l->shm && shm_count_attached(l->shm) == l->n);
}

int local_state(struct mesh_net *net)
{
    struct local *l = net->local;
    if (!l->failed && !all_here(l) && is_late(net))
        give_up(net, "not all of them answered in time");
    if (l->failed)
        return -1;
    return all_here(l) ? 0 : 1;
}

int local_map(struct mesh_net *net, const struct buf **ret)
{
    struct local *l = net->local;
    *ret = &l->map;
    if (l->failed)
        return -1;
    return l->map.len && all_here(l) ? 0 : 1;
}

int local_share_map(struct mesh_net *net, const struct buf *map)
{
    return relay_send(net, LOCAL_MAP, map, NULL, 0);
}

void local_waiting(struct mesh_net *net, bool *in)
{
    struct local *l = net->local;
    for (int i = 0; i < l->n; i++)
        if (i != l->seat && !(l->shm && shm_has_attached(l->shm, i)))
            in[l->ranks[i]] = true;
}

struct shm *local_take_segment(struct mesh_net *net)
{
    struct local *l = net->local;
    struct shm *shm = l->shm;
    l->shm = NULL;
    l->settled = true;
    return shm;
}

void local_drop_segment(struct mesh_net *net)
{
    net_release(
        net, &net->doorbell); /* other ranks hold it, too: close() would not remove it from epoll */
    shm_destroy(local_take_segment(net));
}

void local_tell_lost(struct mesh_net *net, const struct buf *body)
{
    if (net->local)
        relay_send(net, LOCAL_LOST, body, NULL, 0);
}

void local_goodbye(struct mesh_net *net)
{
    struct buf none = {0};
    /* In a fixed job no rank waits for the goodbye of another one; all wait for the last goodbye.
     */
    if (net->mesh->shm)
        shm_leave(net->mesh->shm, net->elastic);
    else if (net->local)
        relay_send(net, LOCAL_GOODBYE, &none, NULL, 0);
}

void local_flush(struct mesh_net *net)
{
    struct mesh *mesh = net->mesh;
    struct local *l = net->local;
    for (int i = 0; l && mesh->shm && i < l->n; i++) {
        struct link **links = &net->links[(size_t)l->ranks[i] * LINK_CLASSES];
        if (links[LINK_CONTROL] && links[LINK_CONTROL]->out.len)
            link_flush(links[LINK_CONTROL]);
        if (links[LINK_DATA] && links[LINK_DATA]->ops && !links[LINK_DATA]->error)
            link_flush_debt(links[LINK_DATA]);
    }
}

void local_close(struct mesh_net *net)
{
    if (net->local)
        relay_close(net);
}

void local_destroy(struct mesh_net *net)
{
    struct local *l = net->local;
    if (!l)
        return;
    relay_close(net);
    if (l->shm)
        net_release(net, &net->doorbell);
    for (int i = 0; l->bells && i < l->n; i++)
        if (l->bells[i] >= 0)
            close(l->bells[i]);
    shm_destroy(l->shm);
    free(l->ranks);
    free(l->bells);
    free(l->spokes);
    buf_fini(&l->map);
    free(l);
    net->local = NULL;
}
