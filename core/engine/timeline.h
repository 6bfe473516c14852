/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: a Chrome trace of the operations of this rank, for Perfetto and chrome://tracing.
 *
 * The driver of the engine adds a record for each finished operation to a bounded ring and never
 * waits; a small thread of the timeline's own turns records into JSON and writes
 * them. When the ring is full the record is dropped and counted. The file is a valid JSON array
 * after each write, whatever becomes of the process. When a write fails (a full disk) that is said
 * once, and the file ends there, a valid array still.
 */
#ifndef HVD_ENGINE_TIMELINE_H
#define HVD_ENGINE_TIMELINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

#include "core/base/err.h"

/* Times are clock_ns() values, in rising order; 0: it did not come so far. */
struct timeline_op {
    enum hvd_kind kind;
    enum hvd_dtype dtype;
    int ndim;
    int64_t shape[HVD_MAX_DIMS];
    int status;            /* 0 or -errno */
    uint64_t submit_ns;    /* handed to the engine */
    uint64_t batch_ns;     /* every rank has it: the end of negotiation */
    uint64_t start_ns;     /* its batch began */
    uint64_t end_ns;       /* done */
    const char *algorithm; /* copied, cut at 31 bytes */
    const char *name;      /* copied */
};

struct timeline;

/* path may contain %r, the rank; without it only rank 0 writes: *ret is NULL on the others. */
int timeline_open(const char *path, int rank, bool mark_cycles, struct timeline **ret,
                  struct err *err);

/* Writes what is left and ends the thread. NULL is fine. */
void timeline_close(struct timeline *t);

void timeline_add(struct timeline *t, const struct timeline_op *op);

/* A batch was cut; a mark when cycles are marked. */
void timeline_cycle(struct timeline *t, uint64_t now);

/* Where the engine has it: any thread may put another one there, also while the driver is in a
 * repair. Begins as zeros. */
struct timeline_place {
    pthread_mutex_t lock;
    struct timeline *timeline;
    _Atomic int on; /* there is one */
};

static inline bool timeline_on(const struct timeline_place *p)
{
    return atomic_load_explicit(&p->on, memory_order_relaxed);
}

/* The one that was there, NULL: none. */
struct timeline *timeline_put(struct timeline_place *p, struct timeline *fresh);

void timeline_add_at(struct timeline_place *p, const struct timeline_op *op);
void timeline_cycle_at(struct timeline_place *p, uint64_t now);

/* In the child after fork(2): closes the file. Async-signal-safe. */
void timeline_after_fork(struct timeline_place *p);

#endif
