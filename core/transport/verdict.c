/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict: see verdict.h.
 */
#include "core/transport/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/transport/accept.h"
#include "core/transport/dial.h"
#include "core/transport/link_private.h"
#include "core/transport/listener.h"
#include "core/transport/local.h"
#include "core/transport/shm.h"

#define GRACE_NS (150 * CLOCK_MS)

enum { NOBODY = -1, THE_AGENT = -2 };

static void suspect(struct mesh_net *net, int peer, uint64_t at, const char *text)
{
    net->suspect = peer;
    net->verdict_at = at;
    snprintf(net->suspect_text, sizeof(net->suspect_text), "%s", text);
    if (at)
        net_timer_at(net, at);
}

/* When to act on a suspicion that may still get a better explanation. In an elastic job at once:
 * the coordinator knows which rank is lost, and repair is cheap. */
static uint64_t when(const struct mesh_net *net)
{
    return net->elastic ? 0 : clock_ns() + GRACE_NS;
}

/* A better explanation replaces a suspicion, but not a certainty. */
static bool is_certain(const struct mesh_net *net)
{
    return net->failed || (net->suspect != NOBODY && net->verdict_at == 0);
}

void verdict_connection_lost(struct mesh_net *net, int peer, int rc)
{
    char text[sizeof(net->suspect_text)];
    verdict_look_for_goodbyes(net);
    if (net->failed || net->left[peer])
        return;
    if (net->said_goodbye) {
        net->left[peer] = true;
        return;
    }
    if (net->suspect != NOBODY)
        return;
    snprintf(text, sizeof(text), "lost the connection to rank %d: %s", net_name(net, peer),
             strerror(-rc));
    suspect(net, peer, when(net), text);
}

void verdict_dead(struct mesh_net *net, int peer, const char *how)
{
    char text[sizeof(net->suspect_text)];
    verdict_look_for_goodbyes(net);
    if (net->said_goodbye)
        net->left[peer] = true;
    if (is_certain(net) || net->left[peer])
        return;
    snprintf(text, sizeof(text), "rank %d %s", net_name(net, peer), how);
    suspect(net, peer, 0, text);
}

void verdict_unreachable(struct mesh_net *net, int peer, const char *text)
{
    verdict_look_for_goodbyes(net);
    if (net->said_goodbye)
        net->left[peer] = true;
    if (!net->failed && net->suspect == NOBODY && !net->left[peer])
        suspect(net, peer, when(net), text);
}

void verdict_agent_lost(struct mesh_net *net)
{
    if (!net->said_goodbye && !is_certain(net))
        suspect(net, THE_AGENT, 0, "lost the agent of this rank");
}

bool verdict_is_own(int rc)
{
    return rc == -ENOMEM || rc == -ETOOMANYREFS || fd_limit_reached(rc);
}

void verdict_out_of(struct mesh_net *net, int rc)
{
    char text[64];
    if (net->said_goodbye || is_certain(net))
        return;
    snprintf(text, sizeof(text), "rank %d gave up: out of %s", net_name(net, net->mesh->rank),
             rc == -ENOMEM ? "memory" : "descriptors");
    net->out_of = rc;
    suspect(net, net->mesh->rank, 0, text);
    net_timer_at(net, clock_ns()); /* no event may follow that would wake this rank */
}

/* Reads the text of a CTL_LOST: with its length before it, or up to the end. */
static void read_text(struct reader *r, char *text, size_t size)
{
    struct reader copy = *r;
    size_t n = reader_u16(&copy);
    if (copy.failed || n != copy.len - copy.pos) {
        copy = *r;
        n = copy.len - copy.pos;
    }
    const char *p = reader_bytes(&copy, n);
    if (n >= size)
        n = size - 1;
    for (size_t i = 0; p && i < n; i++)
        text[i] = p[i] >= ' ' || (p[i] & 0x80) ? p[i] : ' ';
    text[p ? n : 0] = '\0';
}

static int rank_of(const struct mesh *mesh, uint32_t member)
{
    if (!mesh->members)
        return member < (uint32_t)mesh->size ? (int)member : -1;
    for (int r = 0; r < mesh->size; r++)
        if (mesh->members[r] == member)
            return r;
    return -1;
}

void verdict_told(struct mesh_net *net, int from, const void *body, size_t len)
{
    char words[400], text[sizeof(net->suspect_text)];
    struct reader r = reader_over(body, len);
    int rank = rank_of(net->mesh, reader_u32(&r));
    int32_t code = (int32_t)reader_u32(&r);
    if (r.failed || rank < 0 || is_certain(net))
        return;
    read_text(&r, words, sizeof(words));
    verdict_look_for_goodbyes(net);
    if (net->said_goodbye || net->left[rank]) {
        net->left[rank] = true;
        return;
    }
    if (words[0])
        snprintf(text, sizeof(text), "%s", words);
    else if (code < 0)
        snprintf(text, sizeof(text), "rank %d was killed by signal %lld", net_name(net, rank),
                 -(long long)code);
    else
        snprintf(text, sizeof(text), "rank %d exited with code %d", net_name(net, rank), code);
    log_debug("rank %d says: %s", from, text);
    suspect(net, rank, 0, text);
}

static void put_body(struct buf *out, const struct mesh *mesh, int rank, int code, const char *text)
{
    buf_put_u32(out, mesh->members ? mesh->members[rank] : (uint32_t)rank);
    buf_put_u32(out, (uint32_t)code);
    buf_put_str(out, text);
}

void verdict_goodbye_from(struct mesh_net *net, int peer)
{
    net->left[peer] = true;
    if (net->suspect == peer && net->verdict_at != 0)
        net->suspect = NOBODY;
    for (int c = 0; c < LINK_CLASSES; c++) {
        struct link *link = net->links[peer * LINK_CLASSES + c];
        if (link && link->gone && !link->error)
            link->error = -ECONNRESET;
    }
}

void verdict_look_for_goodbyes(struct mesh_net *net)
{
    struct mesh *mesh = net->mesh;
    int n = mesh->shm && !net->failed ? shm_count_left(mesh->shm) : 0;
    if (n == net->seats_left || n == 0)
        return;
    net->seats_left = n;
    for (int i = 0; i < mesh->shm->seats; i++) {
        int rank = shm_has_left(mesh->shm, i) ? mesh_rank_at(mesh, mesh->host, i) : -1;
        if (rank >= 0 && rank != mesh->rank && !net->left[rank])
            verdict_goodbye_from(net, rank);
    }
}

/* Ends connections from which nothing has arrived for silence_ms. The kernel itself would retry for
 * a quarter of an hour. */
static void look_for_silence(struct mesh_net *net, uint64_t now)
{
    for (int i = 0; i < net->mesh->size * LINK_CLASSES; i++)
        if (net->links[i] && link_silent(net->links[i], net->silence_ms))
            link_broken(net->links[i], -ETIMEDOUT);
    net->look_at = now + net->silence_ms * CLOCK_MS / 4;
}

void verdict_tick(struct mesh_net *net, uint64_t now)
{
    if (net->silence_ms && now >= net->look_at)
        look_for_silence(net, now);
    if (net->silence_ms && net->mesh->size > 1)
        net_timer_at(net, net->look_at);
    if (net->suspect != NOBODY && net->verdict_at > now)
        net_timer_at(net, net->verdict_at);
}

/* Tells the reason to every rank with a connection to this one, before the connections end. */
static void tell_all(struct mesh_net *net, int rank, const char *text)
{
    struct mesh *mesh = net->mesh;
    struct buf body = {0};
    put_body(&body, mesh, rank < 0 ? mesh->rank : rank, 0, text);
    for (int i = 0; !body.failed && i < mesh->size * LINK_CLASSES; i++)
        if (net->links[i])
            link_say(net->links[i], LINK_TAG_LOST, &body);
    local_tell_lost(net, &body);
    if (mesh->shm) {
        bool here = rank >= 0 && mesh->host_of && mesh->host_of[rank] == mesh->host;
        shm_abort(mesh->shm, here ? mesh->local_of[rank] : mesh->local_rank);
        shm_ring_all(mesh->shm);
    }
    buf_fini(&body);
}

static void fail(struct mesh_net *net)
{
    struct mesh *mesh = net->mesh;
    int rank = net->suspect == THE_AGENT ? -1 : net->suspect;
    net->failed = true;
    net->lost_rank = rank;
    err_set(&net->why, net->out_of ? -net->out_of : ECONNRESET, "%s", net->suspect_text);
    if (!net->said_goodbye)
        tell_all(net, rank, net->suspect_text);
    for (int i = 0; i < mesh->size * LINK_CLASSES; i++)
        if (net->links[i])
            link_close(net->links[i]);
    dial_fini(net);
    accept_fini(net);
    local_close(net);
    mesh_listener_after_fork(net->listener);
}

/* The epoch is over for all ranks of this host: none of them says goodbye in it any more. */
static void forget_local(struct mesh_net *net)
{
    for (int r = 0; r < net->mesh->size; r++)
        if (net->mesh->host_of[r] == net->mesh->host)
            net->left[r] = true;
}

int verdict_check(struct mesh_net *net)
{
    struct mesh *mesh = net->mesh;
    verdict_look_for_goodbyes(net);
    int word = mesh->shm && !net->failed ? shm_aborted(mesh->shm) : 0;
    if (word && net->said_goodbye) {
        forget_local(net);
    } else if (word && net->suspect == NOBODY) {
        char text[64];
        int rank = mesh_rank_at(mesh, mesh->host, word - 1);
        snprintf(text, sizeof(text), "rank %d was lost or gave up", net_name(net, rank));
        suspect(net, rank < 0 ? mesh->rank : rank, when(net), text);
    }
    if (!net->failed && net->suspect != NOBODY && clock_ns() >= net->verdict_at)
        fail(net);
    return net->failed ? net->why.code : 0;
}

void verdict_abort(struct mesh_net *net, const char *why)
{
    char text[sizeof(net->suspect_text)];
    if (net->failed)
        return;
    snprintf(text, sizeof(text), "rank %d gave up: %s", net_name(net, net->mesh->rank), why);
    suspect(net, net->mesh->rank, 0, text);
    fail(net);
}
