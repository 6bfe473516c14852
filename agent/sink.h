/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: a queue before a descriptor that belongs to others too (standard output, a pipe to ssh):
 * never blocks, never makes it nonblocking. A regular file, whose writes may wait for a disk, is
 * written by a thread (writer.h). One thread, on the owner's loop.
 */
#ifndef HVD_AGENT_SINK_H
#define HVD_AGENT_SINK_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/writer.h"
#include "core/base/buf.h"
#include "core/base/loop.h"

/* A sink that holds more is full: whoever feeds it should pause. It takes everything all the same.
 */
#define SINK_FULL (1u << 20)

struct sink {
    struct loop *loop;
    int fd; /* not owned */
    struct loop_fd lfd;
    struct buf queue;
    size_t pos;            /* written already */
    uint64_t moved;        /* clock: when bytes went last, or began to wait */
    struct writer *writer; /* of a regular file, NULL: none */
    struct loop_fd writer_lfd;
    bool was_full;              /* somebody may have paused for it */
    int failed;                 /* errno of what failed: everything after is dropped */
    bool keep;                  /* what was not written by then stays: sink_take() */
    void (*drained)(void *arg); /* it was full and is so no longer; also from inside sink_*() */
    void *arg;
};

void sink_init(struct sink *s, struct loop *loop, int fd, void (*drained)(void *arg), void *arg);
void sink_fini(struct sink *s);

/* Queued and, as far as it goes without waiting, written. */
void sink_write(struct sink *s, const void *data, size_t n);

/* Only queued, until the next sink_write() or sink_flush(), or memory is out: many small pieces
 * cost one write. */
void sink_put(struct sink *s, const void *data, size_t n);
void sink_flush(struct sink *s);

/* Hands over what a sink that failed has kept, perhaps from the middle of something. */
void sink_take(struct sink *s, struct buf *ret);

/* Bytes that are not written yet. */
size_t sink_pending(const struct sink *s);

/* The clock when bytes were written last, or began to wait. */
uint64_t sink_moved(const struct sink *s);

static inline bool sink_full(const struct sink *s)
{
    return sink_pending(s) >= SINK_FULL;
}

#endif
