/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_choice: whether staging is written through the cache or past it (non-temporal stores).
 *
 * Where the ranks share a last-level cache, through it is up to three times faster; where they do
 * not (other sockets, other core complexes, a virtual machine whose processors move about), each
 * store first takes the line away from a far reader, and past the cache is as much faster. Nothing
 * tells reliably which it is, so seat 0 measures: it tries the other way now and then, in runs of
 * each order of size, and says in its flags how the next run is to be written. The choice touches
 * speed only. Private to core/coll/shm_*; under the progress lock.
 */
#ifndef HVD_COLL_SHM_CHOICE_H
#define HVD_COLL_SHM_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport/shm.h"

#define SHM_CHOICE_SAMPLES 3

struct shm_choice_class {
    uint64_t runs;                        /* the same on all seats */
    uint64_t cost[2][SHM_CHOICE_SAMPLES]; /* of the last ones: ns for a MiB; 0: none yet */
    unsigned samples[2];
    bool best;
};

struct shm_choice {
    struct shm *shm;
    uint32_t generation;
    struct shm_choice_class classes[SHM_CHOICES];
    int class; /* of the run under way, -1: too small to matter */
    bool far;
    size_t bytes;
    uint64_t spent; /* ns in this run's copies and sums, without waiting */
};

void shm_choice_init(struct shm_choice *c, struct shm *shm);

/* Begins a run of so many bytes a seat; all seats do, and count anew in a new generation. True:
 * staging is to be written past the cache. */
bool shm_choice_begin(struct shm_choice *c, uint32_t generation, size_t bytes);

/* True when the caller is to add the time it works to c->spent. */
static inline bool shm_choice_timed(const struct shm_choice *c)
{
    return c->class >= 0 && c->shm->seat == 0;
}

/* The run is over. */
void shm_choice_end(struct shm_choice *c);

#endif
