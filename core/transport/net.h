/* SPDX-License-Identifier: Apache-2.0
 *
 * net: structures that the files behind mesh.h share: the mesh's sockets, links and epoll set.
 * Private to core/transport.
 *
 *   listener   sockets that listen, made before the cards are exchanged
 *   accept     connections that came and have not proven themselves yet
 *   dial       connections under way to a peer, several addresses of it in turn
 *   link, xfer, message   what an established connection carries
 *   local      ranks of this host: the segment and the doorbells are passed round, deaths are seen
 *   agree      all ranks learn who shares memory with whom
 *   verdict    a peer was lost, or leaves in order
 *
 * Everything runs under the engine's progress lock.
 */
#ifndef HVD_TRANSPORT_NET_H
#define HVD_TRANSPORT_NET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "core/base/ctl.h"
#include "core/base/err.h"
#include "core/base/list.h"
#include "core/base/mac.h"
#include "core/transport/card.h"
#include "core/transport/mesh.h"

struct net_watch;
typedef void net_ready_f(struct mesh_net *net, struct net_watch *w, uint32_t events);

/* A descriptor in the epoll set, embedded in its owner. fd -1: none. */
struct net_watch {
    int fd;
    net_ready_f *ready;
};

#define NET_BATCH 64

struct agree;
struct boot;
struct local;

struct mesh_net {
    struct mesh *mesh;
    uint8_t key[MAC_KEY_SIZE]; /* key of this mesh, derived from the job's key and all cards */
    bool has_key;
    struct card *cards; /* [size] */
    struct mesh_listener *listener;

    int epoll_fd;
    struct net_watch wake, timer, doorbell; /* doorbell.fd is the segment's */
    uint64_t timer_at;                      /* UINT64_MAX: not armed */
    struct epoll_event batch[NET_BATCH];
    int nbatch;

    struct list pending; /* struct pending: accepted, not authenticated */
    int npending;
    bool accept_again; /* descriptors ran out; accept again later */
    uint64_t refused;

    struct list dials;   /* struct dial */
    struct link **links; /* [size * LINK_CLASSES], NULL where none is */

    struct local *local;          /* NULL: no other rank can be on this host */
    struct boot *boot;            /* borrowed */
    const int *names;             /* boot.names */
    struct ctl *agent;            /* boot.ctl, owned by boot; NULL: no agent */
    struct net_watch agent_watch; /* its fd is owned by boot */

    uint64_t silence_ms; /* HVD_PEER_TIMEOUT_SECONDS */
    uint64_t look_at;    /* when to check for silent peers next; 0: not checked yet */
    bool *left;          /* [size] whether the rank has said goodbye */
    int seats_left;      /* number of the segment's seats that are counted in left */
    bool said_goodbye;
    int suspect; /* the rank that seems lost; -1: none; -2: the agent */
    uint64_t verdict_at;
    char suspect_text[512];
    bool elastic; /* a loss is repaired, so this rank does not wait for a better reason */
    int out_of;   /* -errno: what this rank has run out of, for which it gives up; 0: nothing */
    bool met;     /* mesh_create() has finished */
    uint64_t starved_since; /* since when connections wait for descriptors; 0: none waits */
    bool failed;
    int lost_rank;
    struct err why;
};

/* Adds w->fd to the set, edge-triggered. */
int net_watch(struct mesh_net *net, struct net_watch *w, uint32_t events);

/* Removes w from the set and from the current batch of events; the caller owns the descriptor. */
int net_release(struct mesh_net *net, struct net_watch *w);

/* Like net_release(), and closes the descriptor. */
void net_unwatch(struct mesh_net *net, struct net_watch *w);

/* Makes mesh_progress() run all ticks at this clock_ns() value at the latest. */
void net_timer_at(struct mesh_net *net, uint64_t at);

/* Takes the events of epoll, calls ready and, when the timer is due, the ticks. */
int net_turn(struct mesh_net *net);

/* Counts a refused connection; the first one is logged. */
void net_refuse(struct mesh_net *net, const char *from, const char *why);

/* A rank's number in messages: that in the job, see boot.names. */
static inline int net_name(const struct mesh_net *net, int rank)
{
    return net->names && rank >= 0 ? net->names[rank] : rank;
}

/* Writes the names of the ranks r with in[r] to text: "1, 2, 5"; what does not fit: "and 7 more".
 */
void net_rank_list(const struct mesh_net *net, const bool *in, char *text, size_t text_size);

#endif
