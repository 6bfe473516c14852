/* SPDX-License-Identifier: Apache-2.0
 *
 * shm: the segment that the ranks of one host share: a sealed memfd, mapped by each.
 *
 * Local rank 0 creates the segment (shm_create), the other ranks attach to the descriptor that was
 * passed to them; /dev/shm is never used. It holds, for each seat (local rank): flag lines that
 * only that seat writes, pipes to every other seat, and staging memory. All shared words are
 * written with release and read with acquire; there is no read-modify-write on the data path.
 * A seat is used by one thread at a time (the engine's progress lock).
 */
#ifndef HVD_TRANSPORT_SHM_H
#define HVD_TRANSPORT_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "core/base/err.h"
#include "core/transport/link.h"

#define SHM_LINE       64
#define SHM_MAX_SEATS  512
#define SHM_STAGING    (3u << 19) /* bytes of staging of each seat */
#define SHM_INLINE_MAX 256        /* payload bytes that are stored beside the flag */
#define SHM_CHOICES    3          /* size classes of shm_choice */

/* What there is a pipe for, from each seat to each other one. */
enum shm_pipes { SHM_CONTROL, SHM_DATA, SHM_MESSAGES, SHM_PIPES };

/* n rounded up to whole lines. */
static inline size_t shm_line_up(size_t n)
{
    return (n + SHM_LINE - 1) & ~(size_t)(SHM_LINE - 1);
}

/* What a seat publishes about the current collective. Every word is generation << 40 | counter
 * (shm_stamp) and only increases; a generation is at most MESH_GENERATION_MAX. */
struct shm_flags {
    _Alignas(SHM_LINE) _Atomic uint64_t in; /* steps: the seat's cell holds its input */
    _Atomic uint8_t
        far[SHM_CHOICES][2]; /* written by seat 0: how to write staging, see shm_choice.h */
    _Alignas(SHM_LINE) _Atomic uint64_t red; /* steps: the seat's slice is summed in its cell */
    _Alignas(SHM_LINE) _Atomic uint64_t out; /* steps: the seat has read all cells */
    /* the small path: stamp and payload side by side, two buffers used alternately */
    struct {
        _Alignas(SHM_LINE) _Atomic uint64_t stamp;
        uint8_t payload[SHM_INLINE_MAX + SHM_LINE - sizeof(uint64_t)];
    } small[2];
};

/* What a seat publishes about its cells in an exchange (coll/shm_exchange.h), before it
 * publishes the first one. */
struct shm_table {
    _Atomic uint64_t stamp;        /* stamp of the exchange's first step */
    uint64_t steps;                /* how many steps this seat has */
    uint16_t place[SHM_MAX_SEATS]; /* for each receiver: offset in the cell, in cache lines */
};

/* used alternately: a slow seat may still need the table of the last exchange */
#define SHM_TABLES 2

struct shm {
    int seat, seats;
    int fd;     /* the memfd, owned; -1 after attach has mapped it */
    void *base; /* the mapping */
    size_t size;
    size_t staging_size; /* bytes of staging of each seat */
    size_t cache_size; /* bytes of the last-level cache as the creator saw it: equal on all seats */
    size_t touched;    /* bytes of the own staging that are resident */
    size_t pipe_size[SHM_PIPES];
    int *doorbells;  /* [seats] eventfds, owned; -1: unknown yet */
    int usable_cpus; /* processors of all seats together, by affinity and cgroup quota */
    bool spin;       /* cpus_may_spin() */
};

static inline uint64_t shm_stamp(uint32_t generation, uint64_t counter)
{
    return (uint64_t)generation << 40 | counter;
}

/* Creates a segment for `seats` ranks with a random token; its descriptor is shm->fd. */
int shm_create(int seats, uint8_t token[16], struct shm **ret, struct err *err);

/* Maps fd (taken over in any case) as seat; checks seals, size, magic, version and token. */
int shm_attach(int fd, int seat, int seats, const uint8_t token[16], struct shm **ret,
               struct err *err);
void shm_destroy(struct shm *shm);

/* Takes ownership of the eventfd of a seat. shm_create() makes those of all seats; a seat that
 * attaches gets each of them, its own included, by this call. It is never read: each write is an
 * edge for epoll, whatever the count. */
void shm_set_doorbell(struct shm *shm, int seat, int eventfd);

/* How many seats have attached, the creator's included; whether this seat has. */
int shm_count_attached(struct shm *shm);
bool shm_has_attached(struct shm *shm, int seat);

/* Sets usable_cpus and spin, which stay 0 and false until this is called after every seat has
 * attached. A seat may spin only if each can have a processor of its own. */
void shm_find_spin(struct shm *shm);

/* Records that this seat leaves in order. The last seat that leaves writes all doorbells; with wake
 * every seat does. */
void shm_leave(struct shm *shm, bool wake);
int shm_count_left(struct shm *shm);
bool shm_has_left(struct shm *shm, int seat);

/* Writes a seat's doorbell, even if the seat is awake. */
void shm_knock(struct shm *shm, int seat);

struct shm_flags *shm_flags_of(struct shm *shm, int seat);
struct shm_table *shm_tables_of(struct shm *shm, int seat);
uint8_t *shm_staging_of(struct shm *shm, int seat);

/* Makes the first bytes of the own staging resident: the first touch of a page costs
 * microseconds. Called for the first operation that uses them, so that init is short and memory
 * small. */
void shm_touch_staging(struct shm *shm, size_t bytes);

/* Bytes of memory that a segment takes once large operations use it, if they use `staging` bytes of
 * each seat: with the pages of its seats. Pipes come to it only for pairs of seats that use them.
 * Below: how much of that a segment does not have yet. */
size_t shm_memory(int seats, size_t staging);
size_t shm_memory_to_come(struct shm *shm, size_t staging);

/* After publishing a flag: writes the eventfd of every seat (one seat, n seats) that sleeps.
 * Costs a full fence, and a load for each seat, if none does. */
void shm_ring_all(struct shm *shm);
void shm_ring_some(struct shm *shm, const int *seats, int n);
void shm_ring(struct shm *shm, int seat);

/* Between begin and end, check once more for something to do before sleeping on the doorbell. */
void shm_sleep_begin(struct shm *shm);
void shm_sleep_end(struct shm *shm);

/* The abort word: 0, or 1 + the local rank that was lost or gave up; the first writer wins. A full
 * fence follows the write: a seat that reads flags after shm_abort() sees every flag of each seat
 * that did not see the word after setting it (coll/shm_steps.h, shm_steps_may_return). */
int shm_aborted(struct shm *shm);
void shm_abort(struct shm *shm, int dead_seat);

/* A byte pipe to another seat: single producer, single consumer, lock-free, a ring buffer.
 * Returns the bytes moved, 0 when full or empty. The caller rings the doorbell. The n parts appear
 * to the reader at once. *read: 0 at first; how far the writer knows the reader to be: asking costs
 * a cache miss. */
size_t shm_pipe_write(struct shm *shm, enum shm_pipes which, int to, const struct iovec *iov, int n,
                      uint64_t *read);
size_t shm_pipe_read(struct shm *shm, enum shm_pipes which, int from, void *dst, size_t n);

#endif
