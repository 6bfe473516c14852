/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_choice: whether staging is written through the cache or past it (non-temporal stores).
 *
 * Where the ranks share a last-level cache, writing through it is up to three times faster; where
 * they do not (other sockets, other core complexes, a virtual machine whose processors move about),
 * each store first has to fetch the cache line from a distant core, and writing past the cache is
 * as much faster. The hardware does not report reliably which case it is, so seat 0 measures: from
 * time to time it tries the other way, in runs of each size class, and writes into its flags how
 * the next run is to be written. The choice affects only speed. Private to core/coll/shm_*; under
 * the progress lock.
 */
#ifndef HVD_COLL_SHM_CHOICE_H
#define HVD_COLL_SHM_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/transport/shm.h"

#define SHM_CHOICE_SAMPLES 3

struct shm_choice_class {
    uint64_t runs;                        /* equal on all seats */
    uint64_t cost[2][SHM_CHOICE_SAMPLES]; /* last samples, in ns per MiB; 0: none yet */
    unsigned samples[2];
    bool best;
};

struct shm_choice {
    struct shm *shm;
    uint32_t generation;
    struct shm_choice_class classes[SHM_CHOICES];
    int class; /* size class of the current run; -1: too small to matter */
    bool far;
    size_t bytes;
    uint64_t spent; /* ns in this run's copies and sums, without waiting */
};

void shm_choice_init(struct shm_choice *c, struct shm *shm);

/* Begins a run of so many bytes on each seat. All seats call it. The count of runs begins at 0
 * again in a new generation. Returns true if staging is to be written past the cache. */
bool shm_choice_begin(struct shm_choice *c, uint32_t generation, size_t bytes);

/* Returns whether the caller has to add its working time to c->spent. */
static inline bool shm_choice_timed(const struct shm_choice *c)
{
    return c->class >= 0 && c->shm->seat == 0;
}

/* Ends the run. */
void shm_choice_end(struct shm_choice *c);

#endif
