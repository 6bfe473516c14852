/* SPDX-License-Identifier: Apache-2.0
 *
 * relay: sends the frames of local.h to the other ranks of this host: through the agent, or over a
 * star of abstract Unix sockets with the lowest rank in its middle. Part of the mesh (net.h).
 */
#ifndef HVD_TRANSPORT_RELAY_H
#define HVD_TRANSPORT_RELAY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/transport/auth.h"
#include "core/transport/local.h"
#include "core/transport/net.h"

struct shm;

/* The lowest rank's connection to another rank. */
struct spoke {
    struct net_watch watch;
    struct ctl ctl;
};

struct local {
    int *ranks; /* [n] */
    int n, seat;
    bool by_agent;
    uint8_t token[16];
    struct shm *shm; /* until the mesh has taken it */
    int *bells;      /* [n] doorbells that arrived before the segment; -1: none */
    int nbells;      /* how many doorbells have arrived */
    int attached;    /* attached seats when the lowest rank last counted them */
    bool failed;     /* decided: the ranks do not share memory */
    bool settled;    /* decided either way: the map is known */
    char why[256];
    uint64_t deadline;
    struct buf map;

    struct spoke *spokes;   /* [n] by seat; on the lowest rank */
    struct net_watch watch; /* on the other ranks: the connection to the lowest rank */
    struct auth auth;
    bool proven;
    struct ctl ctl;
};

int local_seat_of(const struct local *l, int rank);

/* Handles the content of a frame from either transport. Descriptors that it takes become -1. */
void local_handle(struct mesh_net *net, int from, uint16_t what, const void *body, size_t len,
                  int *fds, size_t nfds);

/* Sends to all other ranks of this host. */
int relay_send(struct mesh_net *net, enum local_what what, const struct buf *body, const int *fds,
               size_t nfds);

/* Sends LOCAL_BELLS and LOCAL_SEGMENT to one seat (only without an agent), or to all (-1). */
int relay_segment(struct mesh_net *net, int seat);

/* Retries to pass descriptors that the kernel refused. Call when the net's timer is due. */
void relay_tick(struct mesh_net *net);

/* Connects to the lowest rank. */
void relay_dial(struct mesh_net *net);

void relay_close(struct mesh_net *net);

#endif
