/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_private: where things are in the shared segment. It has a common page, a page for each seat,
 * pipes for every ordered pair of seats, and the staging of each seat. Pages use memory only after
 * they are touched: the file's size does not show its memory. Only shm.c and shm_create.c include
 * this.
 */
#ifndef HVD_TRANSPORT_SHM_PRIVATE_H
#define HVD_TRANSPORT_SHM_PRIVATE_H

#include "core/base/cpus.h"
#include "core/transport/shm.h"

#define SHM_PAGE 4096

/* The first page. The creator writes the fields above the abort word once. */
struct shm_head {
    uint64_t magic;
    uint32_t version, seats;
    uint64_t size, cache_size;
    uint8_t token[16];
    _Alignas(SHM_LINE) _Atomic uint32_t abort;
    _Alignas(SHM_LINE) _Atomic uint32_t attached; /* how many seats have attached */
    _Atomic uint32_t left;                        /* how many seats have left in order */
    _Alignas(SHM_LINE) _Atomic uint32_t sleeping[SHM_MAX_SEATS];
};

/* One seat's page. */
struct shm_seat {
    struct shm_flags flags;
    _Alignas(SHM_LINE) struct shm_table tables[SHM_TABLES];
    _Alignas(SHM_LINE) _Atomic uint32_t attached; /* the mask is valid */
    _Atomic uint32_t left;
    uint32_t quota;
    uint64_t cpus[CPUS_MASK_WORDS];
    _Atomic uint32_t touched; /* bytes of the seat's staging that are resident */
};

struct shm_pipe {
    _Alignas(SHM_LINE) _Atomic uint64_t written;
    _Alignas(SHM_LINE) _Atomic uint64_t read;
    _Alignas(SHM_LINE) uint8_t data[];
};

_Static_assert(sizeof(struct shm_head) <= SHM_PAGE, "head fits its page");
_Static_assert(sizeof(struct shm_seat) <= SHM_PAGE, "seat fits its page");

static inline size_t page_up(size_t n)
{
    return (n + SHM_PAGE - 1) & ~(size_t)(SHM_PAGE - 1);
}

/* Beyond 64 seats half the size for twice the seats: all pipes must fit into the address space. */
static inline size_t pipe_size(enum shm_pipes which, int seats)
{
    size_t size = which == SHM_CONTROL ? 64u << 10 : 128u << 10;
    for (int limit = 64; seats > limit; limit *= 2)
        size /= 2;
    return size;
}

static inline size_t pipe_stride(enum shm_pipes which, int seats)
{
    return page_up(sizeof(struct shm_pipe) + pipe_size(which, seats));
}

static inline size_t seat_offset(int seat)
{
    return SHM_PAGE * (1 + (size_t)seat);
}

/* which SHM_PIPES: the end of the last ones. */
static inline size_t pipes_offset(enum shm_pipes which, int seats)
{
    size_t at = seat_offset(seats);
    for (int i = 0; i < (int)which; i++)
        at += (size_t)seats * (size_t)seats * pipe_stride((enum shm_pipes)i, seats);
    return at;
}

static inline size_t pipe_offset(enum shm_pipes which, int seats, int from, int to)
{
    size_t pair = (size_t)from * (size_t)seats + (size_t)to;
    return pipes_offset(which, seats) + pair * pipe_stride(which, seats);
}

static inline size_t staging_offset(int seats, int seat)
{
    return pipes_offset(SHM_PIPES, seats) + (size_t)seat * SHM_STAGING;
}

static inline size_t segment_size(int seats)
{
    return staging_offset(seats, seats);
}

static inline struct shm_head *head_of(struct shm *shm)
{
    return shm->base;
}

static inline struct shm_seat *seat_of(struct shm *shm, int seat)
{
    return (struct shm_seat *)((uint8_t *)shm->base + seat_offset(seat));
}

#endif
