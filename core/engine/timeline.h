/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline: a Chrome trace of the operations of this rank, for Perfetto and chrome://tracing.
 *
 * The driver adds a record for each finished operation to a bounded ring and never waits. A thread
 * of the timeline's own turns records into JSON and writes them. When the ring is full the record
 * is dropped and counted. The file is a valid JSON array after each write, even if the process is
 * killed later. When a write fails (a full disk), one warning is logged and the file ends there,
 * still a valid array.
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

/* Times are clock_ns() values in rising order; 0: the operation did not reach that step. */
struct timeline_op {
    enum hvd_kind kind;
    enum hvd_dtype dtype;
    int ndim;
    int64_t shape[HVD_MAX_DIMS];
    int status;            /* 0 or -errno */
    uint64_t submit_ns;    /* submitted */
    uint64_t batch_ns;     /* every rank has submitted it: the end of negotiation */
    uint64_t start_ns;     /* its batch began */
    uint64_t end_ns;       /* done */
    const char *algorithm; /* copied, cut at 31 bytes */
    const char *name;      /* copied */
    int set;               /* 0: the world */
    const char *set_text;  /* "set 1 (ranks 0, 2)", copied, cut at 127 bytes; NULL: the world */
};

struct timeline;

/* path may contain %r, the rank; without %r only rank 0 writes, and *ret is NULL on all other
 * ranks. */
int timeline_open(const char *path, int rank, bool mark_cycles, struct timeline **ret,
                  struct err *err);

/* Writes the remaining records and ends the thread. NULL is allowed. */
void timeline_close(struct timeline *t);

void timeline_add(struct timeline *t, const struct timeline_op *op);

/* A batch has started: writes a mark if mark_cycles was set. */
void timeline_cycle(struct timeline *t, uint64_t now);

/* The engine's pointer to its timeline. Any thread may replace the timeline, also while the driver
 * is in a repair. Zero-initialized. */
struct timeline_ref {
    pthread_mutex_t lock;
    struct timeline *timeline;
    _Atomic int on; /* timeline is not NULL */
};

static inline bool timeline_on(const struct timeline_ref *ref)
{
    return atomic_load_explicit(&ref->on, memory_order_relaxed);
}

/* Puts fresh (NULL: none) in place and returns the previous timeline (NULL: none). */
struct timeline *timeline_put(struct timeline_ref *ref, struct timeline *fresh);

void timeline_add_at(struct timeline_ref *ref, const struct timeline_op *op);
void timeline_cycle_at(struct timeline_ref *ref, uint64_t now);

/* In the child after fork(2): closes the file. Async-signal-safe. */
void timeline_after_fork(struct timeline_ref *ref);

#endif
