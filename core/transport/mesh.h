/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh: the ranks of one epoch as the engine sees them: who is where, and a link to each.
 *
 * Built from what the bootstrap found (boot/boot.h). Ranks that prove to share memory (they could
 * pass a memfd to each other and read the same token in it) are one host; the others talk TCP.
 * mesh_create() blocks, bounded by its deadline; all else is nonblocking and runs under the
 * engine's progress lock.
 */
#ifndef HVD_TRANSPORT_MESH_H
#define HVD_TRANSPORT_MESH_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/transport/link.h"

struct boot;
struct ctl;
struct shm;
struct mesh_listener;
struct mesh_net; /* sockets and links; private to transport */

/* A flag has 24 bits for a generation, and its readers look for that of the next one, too. */
#define MESH_GENERATION_MAX ((1u << 24) - 2)

struct mesh {
    uint32_t epoch;      /* of the roster */
    uint32_t generation; /* 1, and one more with every thaw; in every frame and flag */
    uint32_t *members;   /* [size], who each rank is; NULL: its rank */
    int rank, size;
    int local_rank, local_size; /* place among the ranks of this host, by rank */
    int host, hosts;            /* hosts are numbered by their lowest rank */
    int *host_of;               /* [size] */
    int *local_of;              /* [size] */
    int *local_size_of;         /* [hosts] */
    int lanes;                  /* the smallest local_size of all hosts: so many owners a host */
    struct shm *shm;            /* NULL when local_size == 1 */
    struct mesh_net *net;
};

/* Between boot_open() and boot_exchange(): opens what peers will connect to (nothing in a world of
 * 1) and appends this rank's card to ret_card. Looks at boot's rank, size, has_key and agent_fd. */
int mesh_listen(const struct boot *boot, struct mesh_listener **ret, struct buf *ret_card,
                struct err *err);

/* Only for a listener that mesh_create() did not get. NULL is fine. */
void mesh_listener_destroy(struct mesh_listener *listener);

/* After boot_exchange(). The listener is taken over in any case. deadline: clock_ns() value. On
 * failure (half a second after it at the latest) nothing stays open. err names the ranks waited
 * for. Returns when every rank has called it, so it is a barrier too. boot must outlive the mesh
 * (the agent's socket is used, the key copied). */
int mesh_create(struct boot *boot, struct mesh_listener *listener, uint64_t deadline,
                struct mesh **ret, struct err *err);

/* Elastic: the epoch is over for this rank, its shared memory is still read. Closes every
 * descriptor of a mesh that has failed or was parted from; the segment stays mapped until
 * mesh_destroy(). */
void mesh_retire(struct mesh *mesh);

/* Elastic: all ranks have agreed to leave this mesh for the next one. Tells the peers, so that the
 * end of the connections is no failure there, and retires. */
void mesh_part(struct mesh *mesh);

/* Closes everything at once. Without mesh_goodbye() before it the peers take it for a death. NULL
 * is fine. */
void mesh_destroy(struct mesh *mesh);

/* The rank at a place, -1 when there is none. */
int mesh_rank_at(const struct mesh *mesh, int host, int local_rank);

/* The link to a peer (!= rank), made at the first call; NULL when memory is out. */
struct link *mesh_link(struct mesh *mesh, int peer, enum link_class cls);

/* Accepts, connects, shakes hands, flushes control queues. 0, or -ECONNRESET when a peer was lost:
 * *ret_peer (may be NULL) is its rank (-1: the agent), err says how it ended where that is known.
 * The mesh has then told the others and closed every connection; each later call gives the same
 * answer. -ENOMEM, -EMFILE or -ENFILE when it is this rank that had to give up for want of memory
 * or descriptors. Cheap when nothing is to do; called on each turn of a slow wait. */
int mesh_progress(struct mesh *mesh, int *ret_peer, struct err *err);

/* A transfer or a collective has failed: why? Drives mesh_progress() for at most 300 ms until it
 * knows who was lost; answers as mesh_progress(), 0 when nobody was. */
int mesh_why(struct mesh *mesh, int *ret_peer, struct err *err);

/* Rank has been silent for too long, as this rank knows from elsewhere: it is lost as if its
 * connection had ended, for this reason. mesh_progress() tells the others and fails. */
void mesh_lost(struct mesh *mesh, int rank, const char *why);

/* This rank gives up (a failed collective, a peer that talks nonsense): tells the others why and
 * closes every connection. They and later calls here get -ECONNRESET with the text. */
void mesh_abort(struct mesh *mesh, const char *why);

/* An epoll fd that becomes readable when any socket, timer or this rank's doorbell has something
 * new. Wait on it with poll(2), or as a member of another epoll set, and call mesh_progress() after
 * each wake-up: it takes the events, which nobody else may. Registered edge-triggered: after a
 * wake-up every transfer is to be tried again. Valid in a world of 1 too. */
int mesh_fd(const struct mesh *mesh);

/* Before sleeping on mesh_fd(): after begin, check once more that nothing is to do, then sleep; end
 * in any case. Peers that publish something in shared memory between the two, or make room in a
 * pipe, write the doorbell. begin sends what waits for room in a pipe once more. */
void mesh_sleep_begin(struct mesh *mesh);
void mesh_sleep_end(struct mesh *mesh);

/* May the ranks of this host spin while they wait: has each of them a processor of its own? Reads
 * files where there is one rank. */
bool mesh_may_spin(const struct mesh *mesh);

/* Wakes a sleeper of this process (any thread, no lock needed). */
void mesh_wake(struct mesh *mesh);

/* A new generation: every data link drops what is left of older ones, shm flags start anew. All
 * ranks do this at the same place of the log, at most MESH_GENERATION_MAX - 1 times in a mesh. */
void mesh_next_generation(struct mesh *mesh);

/* Connections refused so far: wrong key, garbage, strangers. */
uint64_t mesh_refused(const struct mesh *mesh);

/* Orderly leave: tells every peer this rank has a link to or shares memory with, so that the end of
 * the connections is no failure there. Nonblocking; repeatable. The agent is the caller's to tell
 * (boot_bye). */
void mesh_goodbye(struct mesh *mesh);

/* This peer has said goodbye, or parted. */
bool mesh_has_left(const struct mesh *mesh, int rank);

/* True when every such peer has said goodbye too: nobody will miss us. Keep calling
 * mesh_progress() until then, bounded. */
bool mesh_all_left(const struct mesh *mesh);

/* The frames to and from the agent (base/ctl.h), NULL without one: for sending PROGRESS. Only the
 * mesh receives. */
struct ctl *mesh_agent(struct mesh *mesh);

/* In the child after fork(2): closes every descriptor, unmaps nothing (the segments are
 * MADV_DONTFORK), touches no peer. Async-signal-safe. */
void mesh_after_fork(struct mesh *mesh);

#endif
