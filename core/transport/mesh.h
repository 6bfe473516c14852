/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh: the ranks of one epoch: on which host each is, and a link to each. Built from the result of
 * the bootstrap (boot/boot.h). Ranks that have proven to share memory (they passed a memfd to each
 * other and read the same token in it) are one host; others use TCP. mesh_create() blocks until its
 * deadline at most; everything else is nonblocking and runs under the engine's progress lock.
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
    uint32_t epoch;      /* epoch of the roster */
    uint32_t generation; /* 1 at first, one more with every thaw; part of every frame and flag */
    uint32_t *members;   /* [size], member numbers of the ranks; NULL: equal to the ranks */
    int rank, size;
    int local_rank, local_size; /* rank among the ranks of this host */
    int host, hosts;            /* hosts are numbered by their lowest rank */
    int *host_of;               /* [size] */
    int *local_of;              /* [size] */
    int *local_size_of;         /* [hosts] */
    int lanes;       /* the smallest local_size of all hosts: the number of owners on each host */
    struct shm *shm; /* NULL when local_size == 1 */
    struct mesh_net *net;
};

/* Call between boot_open() and boot_exchange(). Opens the sockets that peers connect to (none in
 * a fixed job of one rank) and appends this rank's card to ret_card. Uses boot's size, elastic,
 * has_key and agent_fd. */
int mesh_listen(const struct boot *boot, struct mesh_listener **ret, struct buf *ret_card,
                struct err *err);

/* Like mesh_listen(), for a mesh of some ranks of another mesh: listens on the addresses of that
 * one. Meshes of this kind have no agent (boot->agent_fd is -1). */
int mesh_listen_within(const struct mesh *mesh, const struct boot *boot, struct mesh_listener **ret,
                       struct buf *ret_card, struct err *err);

/* The most descriptors that a mesh of n ranks has on one of them. */
size_t mesh_most_fds(int n);

/* How many connections to ranks of other hosts this rank may still make: each is made when it is
 * first used. */
size_t mesh_fds_to_come(const struct mesh *mesh);

/* How many of these n ranks of the mesh are on this rank's host. */
int mesh_count_local(const struct mesh *mesh, const int *ranks, int n);

/* Closes the sockets that peers connect to: for a mesh whose ranks all share memory. */
void mesh_close_listener(struct mesh *mesh);

/* Only for a listener that was not passed to mesh_create(). NULL is allowed. Below:
 * closes only its sockets, in the child after fork(2); async-signal-safe, repeatable. */
void mesh_listener_destroy(struct mesh_listener *listener);
void mesh_listener_after_fork(struct mesh_listener *listener);

/* Call after boot_exchange(). Takes over the listener in any case. deadline: a clock_ns() value.
 * Returns when every rank has called it, so it is also a barrier. On failure, half a second
 * after the deadline at the latest, nothing stays open, and err names the ranks that it waited
 * for. boot must outlive the mesh (its agent socket is used, the key is copied). */
int mesh_create(struct boot *boot, struct mesh_listener *listener, uint64_t deadline,
                struct mesh **ret, struct err *err);

/* Elastic: this rank has left the epoch, but still reads its shared memory. Closes every
 * descriptor of a mesh that has failed or was parted from; the segment stays mapped until
 * mesh_destroy(). */
void mesh_retire(struct mesh *mesh);

/* Elastic: all ranks have agreed to replace this mesh. Tells the peers, so that they do not take
 * the end of the connections for a failure, and retires the mesh. */
void mesh_part(struct mesh *mesh);

/* Closes everything at once. Without mesh_goodbye() before it, the peers take this rank as lost.
 * NULL is allowed. */
void mesh_destroy(struct mesh *mesh);

/* The rank with this host and local rank; -1: there is none. */
int mesh_rank_at(const struct mesh *mesh, int host, int local_rank);

/* The link to a peer (!= rank), created at the first call; NULL: no memory. */
struct link *mesh_link(struct mesh *mesh, int peer, enum link_class cls);

/* The link by which a peer (!= rank) sends messages to this rank (LINK_RECV). NULL: it has sent
 * none, or there is no memory. */
struct link *mesh_incoming(struct mesh *mesh, int peer);

/* Accepts and makes connections, runs handshakes, flushes control queues. 0, or -ECONNRESET when
 * a peer was lost: *ret_peer (may be NULL) is its rank (-1: the agent), err says how it ended if
 * that is known. The mesh has then told the other ranks and closed every connection, and later
 * calls return the same. -ENOMEM, -EMFILE, -ENFILE or -ETOOMANYREFS when this rank itself had to
 * give up for lack of memory or descriptors. Cheap when there is nothing to do; called in each
 * iteration of a slow wait. */
int mesh_progress(struct mesh *mesh, int *ret_peer, struct err *err);

/* A transfer or a collective has failed: finds out why. Calls mesh_progress() for at most 300 ms
 * until it is known which rank was lost. Returns as mesh_progress() does; 0: none was lost. */
int mesh_why(struct mesh *mesh, int *ret_peer, struct err *err);

/* This rank knows from elsewhere that `rank` has been silent for too long: treats it as if its
 * connection had ended, for this reason. mesh_progress() then tells the other ranks and fails. */
void mesh_lost(struct mesh *mesh, int rank, const char *why);

/* This rank gives up (a failed collective, malformed data from a peer): tells the other ranks
 * why and closes every connection. They, and later calls on this rank, get -ECONNRESET with the
 * text. */
void mesh_abort(struct mesh *mesh, const char *why);

/* Returns whether a rank of this host has failed or given up this mesh (the abort word), even if
 * mesh_progress() does not report that yet. */
bool mesh_is_aborted(const struct mesh *mesh);

/* An epoll fd that becomes readable when a socket, a timer or this rank's doorbell has an event.
 * Wait for it with poll(2), or as a member of another epoll set, and call mesh_progress() after
 * each wake-up: only that may take the events. They are edge-triggered: after a wake-up try
 * every transfer again. Valid in a job of one rank, too. */
int mesh_fd(const struct mesh *mesh);

/* Before sleeping on mesh_fd(): call begin, check once more that there is nothing to do, then
 * sleep; call end in any case. Between the two, peers that publish in shared memory or make room in
 * a pipe write to the doorbell. begin retries the sends that wait for room in a pipe. */
void mesh_sleep_begin(struct mesh *mesh);
void mesh_sleep_end(struct mesh *mesh);

/* Returns whether the ranks of this host may spin while they wait: only if each has a processor of
 * its own. Reads files at each call if this rank is alone on its host. */
bool mesh_may_spin(const struct mesh *mesh);

/* Wakes a sleeper of this process (any thread, no lock needed). */
void mesh_wake(struct mesh *mesh);

/* Begins a new generation: every data link drops the rest of older ones, and shm flags start
 * again. All ranks do this at the same position of the log, at most MESH_GENERATION_MAX - 1 times
 * in a mesh. */
void mesh_next_generation(struct mesh *mesh);

/* How many connections were refused: wrong key, malformed, or not from a rank of this job. */
uint64_t mesh_refused(const struct mesh *mesh);

/* Leaves in order: tells every peer to which this rank has a link or with which it shares
 * memory, so that they do not take the end of the connections for a failure. Nonblocking;
 * repeatable. The caller tells the agent (boot_bye). */
void mesh_goodbye(struct mesh *mesh);

/* Returns whether this peer has said goodbye, or parted. */
bool mesh_has_left(const struct mesh *mesh, int rank);

/* Returns whether all peers to which mesh_goodbye() said goodbye have said it, too, or the mesh has
 * failed. Keep calling mesh_progress() until then, for a limited time. */
bool mesh_all_left(const struct mesh *mesh);

/* The frames to and from the agent (base/ctl.h) for sending PROGRESS; NULL without an agent.
 * Only the mesh receives. */
struct ctl *mesh_agent(struct mesh *mesh);

/* In the child after fork(2): closes every descriptor, unmaps nothing (the segments are
 * MADV_DONTFORK), touches no peer. Async-signal-safe. */
void mesh_after_fork(struct mesh *mesh);

#endif
