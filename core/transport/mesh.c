/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh: see mesh.h. Making one is in mesh_create.c.
 */
#include "core/transport/mesh.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/transport/accept.h"
#include "core/transport/dial.h"
#include "core/transport/link_private.h"
#include "core/transport/listener.h"
#include "core/transport/local.h"
#include "core/transport/net.h"
#include "core/transport/shm.h"
#include "core/transport/verdict.h"

/* Descriptors of a mesh that belong to no peer: an epoll set, an eventfd, a timer, the segment, a
 * Unix socket and SOCK_MAX_ADDRS others that listen, and some handshakes. */
#define OWN_FDS (5 + SOCK_MAX_ADDRS + 4)

int mesh_rank_at(const struct mesh *mesh, int host, int local_rank)
{
    for (int r = 0; r < mesh->size; r++)
        if (mesh->host_of[r] == host && mesh->local_of[r] == local_rank)
            return r;
    return -1;
}

struct link *mesh_link(struct mesh *mesh, int peer, enum link_class cls)
{
    struct mesh_net *net = mesh->net;
    if (peer < 0 || peer >= mesh->size || peer == mesh->rank)
        return NULL;
    struct link *link = link_get(net, peer, cls);
    if (!link || link->asked)
        return link;
    link->asked = true;
    if (link->ops || link->error)
        return link;
    if (mesh->shm && mesh->host_of[peer] == mesh->host) {
        link_use_pipe(link);
    } else if (link_connects(link) && dial_start(link) < 0) {
        link->asked = false;
        return NULL;
    }
    return link;
}

struct link *mesh_incoming(struct mesh *mesh, int peer)
{
    if (mesh->shm && mesh->host_of[peer] == mesh->host)
        return mesh_link(mesh, peer, LINK_RECV);
    return mesh->net->links[(size_t)peer * LINK_CLASSES + LINK_RECV];
}

static int answer(const struct mesh_net *net, int *ret_peer, struct err *err)
{
    if (!net->failed)
        return 0;
    if (ret_peer)
        *ret_peer = net->lost_rank;
    if (err)
        *err = net->why;
    return net->why.code;
}

int mesh_progress(struct mesh *mesh, int *ret_peer, struct err *err)
{
    struct mesh_net *net = mesh->net;
    if (!net->failed) {
        int rc = net_turn(net);
        if (rc < 0)
            return err_sys(err, -rc, "cannot wait for the network");
        local_flush(net);
        verdict_check(net);
    }
    return answer(net, ret_peer, err);
}

int mesh_why(struct mesh *mesh, int *ret_peer, struct err *err)
{
    uint64_t deadline = deadline_in_ms(300);
    for (;;) {
        int rc = mesh_progress(mesh, ret_peer, err);
        if (rc < 0 || deadline_passed(deadline))
            return rc;
        struct pollfd p = {.fd = mesh_fd(mesh), .events = POLLIN};
        poll(&p, 1, deadline_poll_ms(deadline));
    }
}

void mesh_lost(struct mesh *mesh, int rank, const char *why)
{
    char how[400];
    snprintf(how, sizeof(how), "is lost: %s", why);
    verdict_dead(mesh->net, rank, how);
}

void mesh_abort(struct mesh *mesh, const char *why)
{
    verdict_abort(mesh->net, why);
}

bool mesh_is_aborted(const struct mesh *mesh)
{
    return mesh->shm && shm_aborted(mesh->shm);
}

int mesh_fd(const struct mesh *mesh)
{
    return mesh->net->epoll_fd;
}

void mesh_sleep_begin(struct mesh *mesh)
{
    if (!mesh->shm)
        return;
    shm_sleep_begin(mesh->shm);
    /* A peer does not ring if it made room in a full pipe before it could see this rank asleep. */
    local_flush(mesh->net);
}

void mesh_sleep_end(struct mesh *mesh)
{
    if (mesh->shm)
        shm_sleep_end(mesh->shm);
}

bool mesh_may_spin(const struct mesh *mesh)
{
    return mesh->shm ? mesh->shm->spin : cpus_may_spin(mesh->local_size, cpus_usable());
}

void mesh_wake(struct mesh *mesh)
{
    const uint64_t one = 1;
    ssize_t ignored = write(mesh->net->wake.fd, &one, sizeof(one));
    (void)ignored;
}

void mesh_next_generation(struct mesh *mesh)
{
    mesh->generation++; /* negotiation ensures that it stays within MESH_GENERATION_MAX */
}

size_t mesh_most_fds(int n)
{
    /* For a rank of this host a doorbell, and a connection that shows its end. */
    _Static_assert(LINK_CLASSES >= 2, "as many at least for a rank of another host");
    return OWN_FDS + LINK_CLASSES * (size_t)n;
}

size_t mesh_fds_to_come(const struct mesh *mesh)
{
    size_t n = 0;
    for (int i = 0; !mesh->net->failed && i < mesh->size * LINK_CLASSES; i++) {
        const struct link *link = mesh->net->links[i];
        n += mesh->host_of[i / LINK_CLASSES] != mesh->host && (!link || link->watch.fd < 0);
    }
    return n;
}

int mesh_count_local(const struct mesh *mesh, const int *ranks, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++)
        count += ranks[i] >= 0 && ranks[i] < mesh->size && mesh->host_of[ranks[i]] == mesh->host;
    return count;
}

uint64_t mesh_refused(const struct mesh *mesh)
{
    return mesh->net->refused;
}

struct ctl *mesh_agent(struct mesh *mesh)
{
    return mesh->net->agent_watch.fd >= 0 ? mesh->net->agent : NULL;
}

static void tell_peers(struct mesh *mesh)
{
    struct mesh_net *net = mesh->net;
    net->said_goodbye = true;
    dial_fini(net);
    for (int i = 0; i < mesh->size * LINK_CLASSES; i++)
        if (net->links[i])
            link_say(net->links[i], LINK_TAG_GOODBYE, NULL);
    for (int i = 0; i < mesh->size * LINK_CLASSES; i++)
        if (net->links[i])
            link_drain(net->links[i]);
    local_goodbye(net);
}

void mesh_goodbye(struct mesh *mesh)
{
    struct mesh_net *net = mesh->net;
    if (net->said_goodbye || net->failed)
        return;
    tell_peers(mesh);
}

bool mesh_has_left(const struct mesh *mesh, int rank)
{
    return mesh->net->left[rank];
}

bool mesh_all_left(const struct mesh *mesh)
{
    const struct mesh_net *net = mesh->net;
    if (net->failed)
        return true;
    for (int r = 0; r < mesh->size; r++) {
        bool linked = mesh->shm && mesh->host_of[r] == mesh->host;
        for (int c = 0; c < LINK_CLASSES; c++) {
            const struct link *link = net->links[r * LINK_CLASSES + c];
            linked |= link && link->ops && !link->gone && !link->error;
        }
        if (linked && r != mesh->rank && !net->left[r])
            return false;
    }
    return true;
}

void mesh_retire(struct mesh *mesh)
{
    struct mesh_net *net = mesh->net;
    accept_fini(net);
    dial_fini(net);
    for (int i = 0; net->links && i < mesh->size * LINK_CLASSES; i++) {
        link_destroy(net->links[i]);
        net->links[i] = NULL;
    }
    local_destroy(net);
    mesh_listener_destroy(net->listener);
    net->listener = NULL;
    if (net->agent_watch.fd >= 0)
        net_release(net, &net->agent_watch);
    net_unwatch(net, &net->wake);
    net_unwatch(net, &net->timer);
    if (net->epoll_fd >= 0)
        close(net->epoll_fd);
    net->epoll_fd = -1;
    mac_wipe(net->key, sizeof(net->key));
    net->failed = true;
}

void mesh_part(struct mesh *mesh)
{
    if (!mesh->net->said_goodbye && !mesh->net->failed)
        tell_peers(mesh);
    mesh_retire(mesh);
}

void mesh_destroy(struct mesh *mesh)
{
    if (!mesh)
        return;
    struct mesh_net *net = mesh->net;
    if (net) {
        /* Ranks with an agent have no connection to each other whose end would show that one has
         * left. */
        if (net->epoll_fd >= 0 && mesh->size > 1 && !net->said_goodbye)
            verdict_abort(net, "it left without saying goodbye");
        mesh_retire(mesh);
        free(net->cards);
        free(net->links);
        free(net->left);
        free(net);
    }
    shm_destroy(mesh->shm);
    free(mesh->members);
    free(mesh->host_of);
    free(mesh->local_of);
    free(mesh->local_size_of);
    free(mesh);
}

static void close_once(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void mesh_after_fork(struct mesh *mesh)
{
    struct mesh_net *net = mesh->net;
    accept_after_fork(net);
    dial_after_fork(net);
    for (int i = 0; net->links && i < mesh->size * LINK_CLASSES; i++)
        if (net->links[i])
            close_once(&net->links[i]->watch.fd);
    local_after_fork(net);
    mesh_listener_after_fork(net->listener);
    close_once(&net->wake.fd);
    close_once(&net->timer.fd);
    close_once(&net->epoll_fd);
    for (int i = 0; mesh->shm && i < mesh->shm->seats; i++)
        close_once(&mesh->shm->doorbells[i]);
    if (mesh->shm)
        close_once(&mesh->shm->fd);
}
