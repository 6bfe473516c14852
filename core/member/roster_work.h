/* SPDX-License-Identifier: Apache-2.0
 *
 * roster_work: counts what a job's ranks have done: batches of fused collectives, bytes, and repair
 * times. A part of the roster that does not depend on it. roster_events.c and roster_rebuild.c
 * count, pages read. Used by one thread.
 */
#ifndef HVD_MEMBER_ROSTER_WORK_H
#define HVD_MEMBER_ROSTER_WORK_H

#include <stdint.h>

#define ROSTER_SAMPLES 4 /* samples, one per second */

struct roster_sample {
    uint64_t at, batches, bytes; /* at: clock time of the sample */
};

struct roster_work {
    uint64_t batches, bytes; /* totals of all members */
    struct roster_sample samples[ROSTER_SAMPLES];
    uint32_t repair_epoch;            /* epoch that the last repair led to, 0: none */
    uint64_t repair_last, repair_max; /* ns */
};

/* A rank reports how long the repair that led to epoch took. The slowest rank counts. */
void roster_work_repaired(struct roster_work *w, uint32_t epoch, uint64_t ns);

/* Takes a sample of the counters. Call a few times per second. */
void roster_work_sample(struct roster_work *w, uint64_t now);

/* Rates of the last seconds: batches per second of one rank (of `size` ranks), bytes per second of
 * all ranks. */
void roster_work_rates(const struct roster_work *w, int size, uint64_t now, double *ret_batches,
                       double *ret_bytes);

#endif
