/* SPDX-License-Identifier: Apache-2.0
 *
 * local: the ranks of this host, as far as the cards show: distributes the segment and the
 * doorbells, and reports lost ranks. Part of the mesh (net.h).
 *
 * Everything is CTL_SHARE frames (base/ctl.h) that each rank sends to all others of the host. The
 * agent forwards them. Without an agent the lowest rank does, over abstract Unix sockets that the
 * others open to it and on which they prove the key. These sockets stay open: their end shows that
 * a rank was lost.
 *
 *   BELLS     lowest rank   u32 first seat; the doorbells of that seat and of those after it
 *   SEGMENT   lowest rank   after all BELLS: token, seats, the memfd. Each other rank attaches and
 *                           records that in the segment
 *   FAILED    any rank      why it cannot share memory: each of the ranks is then its own host
 *   MAP       lowest rank   the host of each rank of the job (agree.h)
 *   GOODBYE   any rank      only if there is no segment to record it in
 *   LOST      any rank      which rank it takes for lost, and why; same body as a CTL_LOST
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

/* ranks: the ranks of this host in order, including this one; n > 1. */
int local_start(struct mesh_net *net, const int *ranks, int n, struct err *err);

/* For the lowest rank: 0 when all have attached, 1 not yet, -1: they cannot share memory. */
int local_state(struct mesh_net *net);

/* For the other ranks: 0 and the map that has arrived (owned by local), 1: not yet, -1: they cannot
 * share memory. */
int local_map(struct mesh_net *net, const struct buf **ret);

/* Sends the map to the other ranks of the host. */
int local_share_map(struct mesh_net *net, const struct buf *map);

/* Sets in[size] for the ranks that this one still waits for. */
void local_waiting(struct mesh_net *net, bool *in);

/* Hands the segment, with all doorbells, over to the caller. */
struct shm *local_take_segment(struct mesh_net *net);

/* Drops the segment. */
void local_drop_segment(struct mesh_net *net);

/* For accept.c. local_expects(): whether the peer `rank` may open a local connection to this rank.
 * local_accepted(): it has opened one. */
bool local_expects(const struct mesh_net *net, int rank);
void local_accepted(struct mesh_net *net, int rank, int fd);

/* Handles a CTL_SHARE frame from the agent. */
void local_from_agent(struct mesh_net *net, struct ctl_frame *frame);

void local_tell_lost(struct mesh_net *net, const struct buf *body);
void local_goodbye(struct mesh_net *net);

/* Sends what is queued for the pipes to ranks of this host, as far as they have room. Called by
 * each mesh_progress(), because a pipe has no descriptor that epoll could watch. */
void local_flush(struct mesh_net *net);

void local_close(struct mesh_net *net);
void local_destroy(struct mesh_net *net);
void local_after_fork(struct mesh_net *net);

#endif
