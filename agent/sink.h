/* SPDX-License-Identifier: Apache-2.0
 *
 * sink: a write queue for a descriptor that other processes share (standard output, a pipe to ssh):
 * never blocks, and never sets O_NONBLOCK, which would affect the others. A regular file, whose
 * writes may wait for a disk, is written by a thread (writer.h). One thread, on the owner's loop.
 */
#ifndef HVD_AGENT_SINK_H
#define HVD_AGENT_SINK_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/writer.h"
#include "core/base/buf.h"
#include "core/base/loop.h"

/* A sink that holds more bytes is full: the caller should pause. It accepts more all the same. */
#define SINK_FULL (1u << 20)

struct sink {
    struct loop *loop;
    int fd; /* not owned */
    struct loop_fd lfd;
    struct buf queue;
    size_t pos;            /* bytes of queue that are written */
    uint64_t moved;        /* clock_ns() when bytes were last written, or began to wait */
    struct writer *writer; /* for a regular file, else NULL */
    struct loop_fd writer_lfd;
    bool was_full;              /* the sink was full, so call drained later */
    int failed;                 /* errno of a failed write: later bytes are dropped */
    bool keep;                  /* after a failure keep the unwritten bytes for sink_take() */
    void (*drained)(void *arg); /* no longer full; may be called from within sink_*() */
    void *arg;
};

void sink_init(struct sink *s, struct loop *loop, int fd, void (*drained)(void *arg), void *arg);
void sink_fini(struct sink *s);

/* Queues bytes and writes what can be written without waiting. */
void sink_write(struct sink *s, const void *data, size_t n);

/* Only queues, until the next sink_write() or sink_flush(), or until memory runs out: many small
 * pieces cost one write. */
void sink_put(struct sink *s, const void *data, size_t n);
void sink_flush(struct sink *s);

/* Hands over the unwritten bytes of a failed sink, which may start in the middle of a frame. */
void sink_take(struct sink *s, struct buf *ret);

/* Bytes that are not written yet. */
size_t sink_pending(const struct sink *s);

/* clock_ns() when bytes were last written, or began to wait. */
uint64_t sink_moved(const struct sink *s);

static inline bool sink_full(const struct sink *s)
{
    return sink_pending(s) >= SINK_FULL;
}

#endif
