/* SPDX-License-Identifier: Apache-2.0
 *
 * shm: see shm.h. The doorbells and pipes of a segment that exists; shm_create.c makes it.
 */
#include "core/transport/shm.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/transport/shm_private.h"

struct shm_flags *shm_flags_of(struct shm *shm, int seat)
{
    return &seat_of(shm, seat)->flags;
}

struct shm_table *shm_tables_of(struct shm *shm, int seat)
{
    return seat_of(shm, seat)->tables;
}

uint8_t *shm_staging_of(struct shm *shm, int seat)
{
    return (uint8_t *)shm->base + staging_offset(shm->seats, seat);
}

void shm_touch_staging(struct shm *shm, size_t bytes)
{
    if (bytes <= shm->touched)
        return;
    shm->touched = bytes;
    atomic_store_explicit(&seat_of(shm, shm->seat)->touched, (uint32_t)bytes, memory_order_relaxed);
#ifdef MADV_POPULATE_WRITE
    /* On an old kernel without it, pages are allocated at first use. */
    (void)madvise(shm_staging_of(shm, shm->seat), bytes, MADV_POPULATE_WRITE);
#endif
}

size_t shm_memory(int seats, size_t staging)
{
    return seat_offset(seats) + (size_t)seats * staging;
}

size_t shm_memory_to_come(struct shm *shm, size_t staging)
{
    size_t n = 0;
    for (int i = 0; i < shm->seats; i++) {
        size_t touched = atomic_load_explicit(&seat_of(shm, i)->touched, memory_order_relaxed);
        n += touched < staging ? staging - touched : 0;
    }
    return n;
}

/* ---- doorbells ------------------------------------------------------------------------------ */

void shm_set_doorbell(struct shm *shm, int seat, int eventfd)
{
    if (shm->doorbells[seat] >= 0)
        close(shm->doorbells[seat]);
    shm->doorbells[seat] = eventfd;
}

static void write_doorbell(struct shm *shm, int seat)
{
    uint64_t one = 1;
    ssize_t put;
    if (shm->doorbells[seat] < 0)
        return;
    do {
        put = write(shm->doorbells[seat], &one, sizeof(one));
    } while (put < 0 && errno == EINTR);
}

void shm_knock(struct shm *shm, int seat)
{
    write_doorbell(shm, seat);
}

void shm_leave(struct shm *shm, bool wake)
{
    atomic_store_explicit(&seat_of(shm, shm->seat)->left, 1, memory_order_release);
    uint32_t n = 1 + atomic_fetch_add_explicit(&head_of(shm)->left, 1, memory_order_acq_rel);
    for (int i = 0; i < shm->seats && (wake || n == (uint32_t)shm->seats); i++)
        write_doorbell(shm, i);
}

int shm_count_left(struct shm *shm)
{
    return (int)atomic_load_explicit(&head_of(shm)->left, memory_order_acquire);
}

bool shm_has_left(struct shm *shm, int seat)
{
    return atomic_load_explicit(&seat_of(shm, seat)->left, memory_order_acquire) != 0;
}

/* Call after a fence. The caller that clears the word writes the doorbell, so that a sleeper is
 * woken once. */
static inline void wake_if_asleep(struct shm *shm, int seat)
{
    _Atomic uint32_t *word = &head_of(shm)->sleeping[seat];
    if (__builtin_expect(atomic_load_explicit(word, memory_order_relaxed) != 0, 0) &&
        shm->doorbells[seat] >= 0 && atomic_exchange(word, 0) != 0)
        write_doorbell(shm, seat);
}

void shm_ring(struct shm *shm, int seat)
{
    atomic_thread_fence(memory_order_seq_cst);
    wake_if_asleep(shm, seat);
}

void shm_ring_all(struct shm *shm)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < shm->seats; i++)
        if (i != shm->seat)
            wake_if_asleep(shm, i);
}

void shm_ring_some(struct shm *shm, const int *seats, int n)
{
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < n; i++)
        wake_if_asleep(shm, seats[i]);
}

/* Dekker's algorithm: the sleeper writes its word, fences, and looks for data; the publisher
 * writes data, fences, and reads the word. At least one of them sees the other. */
void shm_sleep_begin(struct shm *shm)
{
    atomic_store_explicit(&head_of(shm)->sleeping[shm->seat], 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
}

void shm_sleep_end(struct shm *shm)
{
    atomic_store_explicit(&head_of(shm)->sleeping[shm->seat], 0, memory_order_relaxed);
}

int shm_aborted(struct shm *shm)
{
    return (int)atomic_load_explicit(&head_of(shm)->abort, memory_order_acquire);
}

void shm_abort(struct shm *shm, int dead_seat)
{
    uint32_t none = 0;
    atomic_compare_exchange_strong(&head_of(shm)->abort, &none, 1 + (uint32_t)dead_seat);
    atomic_thread_fence(memory_order_seq_cst);
    for (int i = 0; i < shm->seats; i++)
        write_doorbell(shm, i);
}

/* ---- pipes ---------------------------------------------------------------------------------- */

static struct shm_pipe *pipe_of(struct shm *shm, enum shm_pipes which, int from, int to)
{
    return (struct shm_pipe *)((uint8_t *)shm->base + pipe_offset(which, shm->seats, from, to));
}

/* Copies into the ring, from position at on. */
static void put(struct shm_pipe *pipe, size_t size, uint64_t at, const struct iovec *iov, size_t n)
{
    size_t start = (size_t)(at & (size - 1));
    size_t first = n < size - start ? n : size - start;
    memcpy(pipe->data + start, iov->iov_base, first);
    memcpy(pipe->data, (const uint8_t *)iov->iov_base + first, n - first);
}

size_t shm_pipe_write(struct shm *shm, enum shm_pipes which, int to, const struct iovec *iov, int n,
                      uint64_t *read)
{
    struct shm_pipe *pipe = pipe_of(shm, which, shm->seat, to);
    size_t size = shm->pipe_size[which], all = 0;
    uint64_t at = atomic_load_explicit(&pipe->written, memory_order_relaxed), end = at;
    for (int i = 0; i < n; i++)
        all += iov[i].iov_len;
    if (size - (at - *read) < all || at - *read > size)
        *read = atomic_load_explicit(&pipe->read, memory_order_acquire);
    if (at - *read >= size)
        return 0;
    for (int i = 0; i < n && end - *read < size; i++) {
        size_t room = size - (size_t)(end - *read);
        size_t part = iov[i].iov_len < room ? iov[i].iov_len : room;
        if (part > 0)
            put(pipe, size, end, &iov[i], part);
        end += part;
    }
    atomic_store_explicit(&pipe->written, end, memory_order_release);
    return (size_t)(end - at);
}

size_t shm_pipe_read(struct shm *shm, enum shm_pipes which, int from, void *dst, size_t n)
{
    struct shm_pipe *pipe = pipe_of(shm, which, from, shm->seat);
    size_t size = shm->pipe_size[which];
    uint64_t at = atomic_load_explicit(&pipe->read, memory_order_relaxed);
    uint64_t ready = atomic_load_explicit(&pipe->written, memory_order_acquire) - at;
    if (ready == 0 || ready > size) /* a damaged counter must not make us read past the pipe */
        return 0;
    if (n > ready)
        n = (size_t)ready;
    size_t start = (size_t)(at & (size - 1));
    size_t first = n < size - start ? n : size - start;
    memcpy(dst, pipe->data + start, first);
    memcpy((uint8_t *)dst + first, pipe->data, n - first);
    atomic_store_explicit(&pipe->read, at + n, memory_order_release);
    return n;
}
