/* SPDX-License-Identifier: Apache-2.0
 *
 * agree: see agree.h.
 */
#include "core/transport/agree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/transport/link_private.h"
#include "core/transport/local.h"
#include "core/transport/shm.h"

enum { MSG_REPORT = 1, MSG_MAP = 2 };

/* Each rank belongs to the group of the first rank that may be on its host. */
static void find_groups(struct agree *a, const struct mesh_net *net)
{
    int size = net->mesh->size;
    for (int r = 0; r < size; r++) {
        a->first_of[r] = r;
        for (int q = 0; q < r && a->first_of[r] == r; q++)
            if (a->first_of[q] == q && card_same_host(&net->cards[q], &net->cards[r]))
                a->first_of[r] = q;
    }
    for (int r = 0; r < size; r++)
        if (a->first_of[r] == a->first_of[net->mesh->rank])
            a->group[a->ngroup++] = r;
}

int agree_init(struct agree *a, struct mesh_net *net, struct err *err)
{
    size_t size = (size_t)net->mesh->size;
    *a = (struct agree){0};
    a->first_of = calloc(size, sizeof(int));
    a->group = calloc(size, sizeof(int));
    a->host_of = calloc(size, sizeof(uint32_t));
    a->reported = calloc(size, sizeof(bool));
    a->together = calloc(size, sizeof(bool));
    if (!a->first_of || !a->group || !a->host_of || !a->reported || !a->together)
        return err_set(err, ENOMEM, "out of memory");
    find_groups(a, net);
    return 0;
}

void agree_fini(struct agree *a)
{
    free(a->first_of);
    free(a->group);
    free(a->host_of);
    free(a->reported);
    free(a->together);
    buf_fini(&a->msg);
}

int agree_apply(struct mesh *mesh, const uint32_t *host_of, struct err *err)
{
    int size = mesh->size, hosts = 0;
    int *host = mesh->host_of = calloc((size_t)size, sizeof(int));
    int *local = mesh->local_of = calloc((size_t)size, sizeof(int));
    int *sizes = mesh->local_size_of = calloc((size_t)size, sizeof(int));
    if (!host || !local || !sizes)
        return err_set(err, ENOMEM, "out of memory");
    for (int r = 0; r < size; r++) {
        if (host_of[r] > (uint32_t)hosts || host_of[r] >= (uint32_t)size)
            return err_set(err, EPROTO, "rank 0 sent a malformed map of the hosts");
        host[r] = (int)host_of[r];
        hosts = host[r] == hosts ? hosts + 1 : hosts;
        local[r] = sizes[host[r]]++;
    }
    mesh->lanes = sizes[0];
    for (int h = 1; h < hosts; h++)
        mesh->lanes = sizes[h] < mesh->lanes ? sizes[h] : mesh->lanes;
    mesh->hosts = hosts;
    mesh->host = host[mesh->rank];
    mesh->local_rank = local[mesh->rank];
    mesh->local_size = sizes[mesh->host];
    return 0;
}

/* Uses the shared segment or drops it, as the map says. */
static int settle(struct mesh_net *net, struct err *err)
{
    struct mesh *mesh = net->mesh;
    if (net->local && mesh->local_size > 1) {
        mesh->shm = local_take_segment(net);
        if (!mesh->shm)
            return err_set(err, EPROTO,
                           "rank 0 sent a map of hosts with a rank that has no shared memory");
        shm_find_spin(mesh->shm);
    } else if (net->local) {
        local_drop_segment(net);
    }
    return 0;
}

/* ---- rank 0 ---- */

static int take_report(struct agree *a, struct mesh_net *net, int from, struct err *err)
{
    struct link *link = mesh_link(net->mesh, from, LINK_CONTROL);
    if (!link)
        return err_set(err, ENOMEM, "out of memory");
    int rc = link_take(link, &a->msg);
    /* verdict.c finds out why a connection ended */
    if (rc == 1 || rc == -ECONNRESET)
        return 1;
    if (rc == -ENOMEM)
        return err_set(err, ENOMEM, "out of memory");
    struct reader r = reader_over(a->msg.data, a->msg.len);
    uint8_t kind = reader_u8(&r), together = reader_u8(&r);
    if (rc < 0 || !reader_ok(&r) || kind != MSG_REPORT || together > 1)
        return err_set(err, EPROTO, "rank %d sent a malformed report", net_name(net, from));
    a->reported[from] = true;
    a->together[from] = together;
    return 0;
}

static int send_map(struct agree *a, struct mesh_net *net, struct err *err)
{
    struct mesh *mesh = net->mesh;
    buf_reset(&a->msg);
    buf_put_u8(&a->msg, MSG_MAP);
    for (int r = 0; r < mesh->size; r++)
        buf_put_u32(&a->msg, a->host_of[r]);
    if (a->msg.failed)
        return err_set(err, ENOMEM, "out of memory");
    int rc = mesh->local_size > 1 ? local_share_map(net, &a->msg) : 0;
    if (rc < 0)
        return err_sys(err, -rc,
                       "cannot tell the other ranks of this host which ranks share a host");
    for (int r = 1; r < mesh->size; r++) {
        if (mesh->local_of[r] != 0)
            continue;
        struct link *link = mesh_link(mesh, r, LINK_CONTROL);
        if (!link || link_post(link, a->msg.data, a->msg.len) == -ENOMEM)
            return err_set(err, ENOMEM, "out of memory");
    }
    return 0;
}

/* Returns whether rank 0 has sent the map to r, or need not: a rank with another local rank than 0
 * gets it from the lowest rank of its host. Rank 0 may connect to r only now: if r's group has
 * failed, another rank reported for it. */
static bool reached(const struct mesh_net *net, int r)
{
    const struct link *link = net->links[r * LINK_CLASSES + LINK_CONTROL];
    return r == 0 || net->mesh->local_of[r] != 0 || (link && link->ops && link->out.len == 0);
}

static int wait_for_all(const struct mesh_net *net)
{
    for (int r = 1; r < net->mesh->size; r++)
        if (!reached(net, r))
            return 1;
    return 0;
}

static int progress_root(struct agree *a, struct mesh_net *net, struct err *err)
{
    struct mesh *mesh = net->mesh;
    int left = 0;
    if (a->mapped)
        return wait_for_all(net);
    for (int r = 0; r < mesh->size; r++) {
        if (a->first_of[r] != r || a->reported[r])
            continue;
        int rc = 0;
        if (r == 0) {
            rc = net->local ? local_state(net) : 0;
            a->reported[0] = rc != 1;
            a->together[0] = rc == 0;
        } else {
            rc = take_report(a, net, r, err);
            if (rc < 0)
                return rc;
        }
        left += rc == 1;
    }
    if (left)
        return 1;
    uint32_t hosts = 0;
    for (int r = 0; r < mesh->size; r++) {
        int first = a->first_of[r];
        a->host_of[r] = first != r && a->together[first] ? a->host_of[first] : hosts++;
    }
    int rc = agree_apply(mesh, a->host_of, err);
    if (rc == 0)
        rc = settle(net, err);
    if (rc == 0)
        rc = send_map(a, net, err);
    a->mapped = rc == 0;
    return rc == 0 ? wait_for_all(net) : rc;
}

/* ---- the other ranks ---- */

static int use_map(struct agree *a, struct mesh_net *net, const struct buf *msg, struct err *err)
{
    struct reader r = reader_over(msg->data, msg->len);
    uint8_t kind = reader_u8(&r);
    for (int i = 0; i < net->mesh->size; i++)
        a->host_of[i] = reader_u32(&r);
    if (kind != MSG_MAP || !reader_ok(&r))
        return err_set(err, EPROTO, "rank 0 sent a malformed map of the hosts");
    int rc = agree_apply(net->mesh, a->host_of, err);
    return rc == 0 ? settle(net, err) : rc;
}

/* Receives the map directly from rank 0. 0: the map is in a->msg. */
static int take_map(struct agree *a, struct mesh_net *net, struct err *err)
{
    struct link *link = net->links[LINK_CONTROL];
    int rc = link ? link_take(link, &a->msg) : 1;
    if (rc == -ENOMEM)
        return err_set(err, ENOMEM, "out of memory");
    if (rc < 0 && rc != -ECONNRESET)
        return err_set(err, -rc, "rank 0 sent a malformed map of the hosts");
    return rc != 0;
}

static int progress_first(struct agree *a, struct mesh_net *net, struct err *err)
{
    int state = net->local ? local_state(net) : 0;
    if (state == 1)
        return 1;
    if (!a->said) {
        struct link *link = mesh_link(net->mesh, 0, LINK_CONTROL);
        const uint8_t report[] = {MSG_REPORT, state == 0};
        if (!link || link_post(link, report, sizeof(report)) == -ENOMEM)
            return err_set(err, ENOMEM, "out of memory");
        a->said = true;
    }
    int rc = take_map(a, net, err);
    if (rc != 0)
        return rc;
    rc = use_map(a, net, &a->msg, err);
    if (rc < 0 || net->mesh->local_size == 1)
        return rc;
    rc = local_share_map(net, &a->msg);
    if (rc < 0)
        return err_sys(err, -rc,
                       "cannot tell the other ranks of this host which ranks share a host");
    return 0;
}

static int progress_other(struct agree *a, struct mesh_net *net, struct err *err)
{
    const struct buf *map = NULL;
    int rc = local_map(net, &map);
    if (rc == -1) {
        rc = take_map(a, net, err);
        map = &a->msg;
    }
    if (rc != 0)
        return rc;
    return use_map(a, net, map, err);
}

int agree_progress(struct agree *a, struct mesh_net *net, struct err *err)
{
    int rank = net->mesh->rank;
    if (rank == 0)
        return progress_root(a, net, err);
    if (a->first_of[rank] == rank)
        return progress_first(a, net, err);
    return progress_other(a, net, err);
}

void agree_waiting(struct agree *a, struct mesh_net *net, bool *in)
{
    struct mesh *mesh = net->mesh;
    bool decided = !net->local || local_state(net) != 1;
    if (!decided && (a->first_of[mesh->rank] == mesh->rank))
        local_waiting(net, in);
    if (mesh->rank != 0 && (decided || a->first_of[mesh->rank] != mesh->rank))
        in[a->first_of[mesh->rank] == mesh->rank ? 0 : a->first_of[mesh->rank]] = true;
    for (int r = 1; mesh->rank == 0 && r < mesh->size; r++)
        if (a->mapped ? !reached(net, r) : a->first_of[r] == r && !a->reported[r])
            in[r] = true;
}
