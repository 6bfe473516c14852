/* SPDX-License-Identifier: Apache-2.0
 *
 * local: the ranks of this host, as far as the cards can tell: passing the segment and the
 * doorbells round, and hearing of deaths. Part of the mesh (net.h).
 *
 * Everything is CTL_SHARE frames (base/ctl.h) that each rank sends to all others of the host. With
 * an agent the agent passes them on; without one the lowest rank does, over abstract Unix sockets
 * that the others open to it and prove the key on. These sockets stay open: their end tells of a
 * death.
 *
 *   BELLS     lowest rank   u32 first seat, the doorbells of it and of the seats behind it
 *   SEGMENT   lowest rank   after all BELLS: token, seats, the memfd. Each other rank attaches and
 *                           says so in the segment
 *   FAILED    anybody       why it cannot: all of them then are hosts of their own
 *   MAP       lowest rank   who is where in the whole world (agree.h)
 *   GOODBYE   anybody, where there is no segment to say it in
 *   LOST      anybody       body of a CTL_LOST, for ways that have no CTL_LOST
 */
#ifndef HVD_TRANSPORT_LOCAL_H
#define HVD_TRANSPORT_LOCAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/transport/net.h"

enum local_what {
    LOCAL_SEGMENT = 1,
    LOCAL_BELLS,
    LOCAL_FAILED,
    LOCAL_MAP,
    LOCAL_GOODBYE,
    LOCAL_LOST,
};

/* ranks: those of this host in order, this one among them; n > 1. */
int local_start(struct mesh_net *net, const int *ranks, int n, struct err *err);

/* The lowest rank: 0 when all have attached, 1 not yet, -1: it is decided that they cannot share.
 */
int local_state(struct mesh_net *net);

/* The others: 0 with the map that came (in buf, of local), 1: not yet, -1 as above. */
int local_map(struct mesh_net *net, const struct buf **ret);

/* Passes the map to the others. */
int local_share_map(struct mesh_net *net, const struct buf *map);

/* Which ranks this one still waits for, in in[size]. */
void local_waiting(struct mesh_net *net, bool *in);

/* The segment, with every doorbell in it: the caller's from now on. */
struct shm *local_take_segment(struct mesh_net *net);

/* Gives the segment up. */
void local_drop_segment(struct mesh_net *net);

/* For accept.c: this rank may come with a local connection; has come. */
bool local_expects(const struct mesh_net *net, int rank);
void local_accepted(struct mesh_net *net, int rank, int fd);

/* A CTL_SHARE frame from the agent. */
void local_from_agent(struct mesh_net *net, struct ctl_frame *frame);

void local_tell_lost(struct mesh_net *net, const struct buf *body);
void local_goodbye(struct mesh_net *net);

/* Pipes only signal through memory: what is queued for them moves at each call. */
void local_flush(struct mesh_net *net);

void local_close(struct mesh_net *net);
void local_destroy(struct mesh_net *net);
void local_after_fork(struct mesh_net *net);

#endif
