/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: reduce-scatter and allgather round a ring of links, in one pipeline.
 *
 * The data is cut into as many segments as the ring has members. Segment k starts at member k, each
 * next member adds what it has, and member k-1 holds the sum, which then goes round once more. A
 * segment travels in blocks: a block is passed on as soon as this member has added its share, so
 * all links are busy all the time. The ring moves bytes; what they mean is the caller's business,
 * by way of three calls. Runs under the progress lock; memory is the caller's.
 */
#ifndef HVD_COLL_RING_H
#define HVD_COLL_RING_H

#include "core/coll/algorithm.h"
#include "core/coll/layout.h"

/* Bytes [off, off + len) of segment seg; the calls for one segment come in rising order of off.
 * Each may answer "not yet": NULL or 1; it is asked again. */
struct ring_ops {
    /* Where this member's own share is: in at, where it may be put, or elsewhere. It stays there
     * until the ring is done or at is overwritten by merge or deliver. */
    const void *(*first)(void *ctx, int seg, size_t off, size_t len, void *at);
    /* Makes at of the partial sum and this member's own share; last: makes the final result. */
    int (*merge)(void *ctx, int seg, size_t off, size_t len, void *at, const void *partial,
                 bool last);
    /* The final result is at. */
    int (*deliver)(void *ctx, int seg, size_t off, size_t len, const void *at);
};

/* A place in the order of messages: block off of the segment of a step. */
struct ring_place {
    int step;
    size_t off;
    struct message msg;
};

struct ring {
    int members, place; /* this rank's place */
    struct link *next, *prev;
    uint64_t tag;
    const size_t *offsets; /* [members + 1] of the segments in work, in bytes */
    uint8_t *work;
    uint8_t *scratch; /* a block, for partial sums to arrive in; NULL: they arrive in work */
    size_t block;     /* a multiple of every element's size */
    const struct ring_ops *ops;
    void *ctx;
    struct ring_place out, in;
    bool arrived; /* the block of in is here and not merged or delivered yet */
    bool merged;  /* it is merged, and not delivered yet */
};

/* Puts both walks at their begin; the fields down to ctx are filled in. members >= 2. */
void ring_start(struct ring *ring);

/* Starts the ring of owners `lane` of all hosts for the operation under way: segment k is piece
 * first + k of layout. offsets: [hosts + 1], filled here and kept by the ring. Takes the
 * work buffer of coll, and a block of it for scratch when that is asked for. */
int ring_open(struct ring *ring, struct coll *coll, const struct layout *layout, size_t first,
              int lane, size_t *offsets, bool scratch, struct err *err);

/* 0: everything has been delivered here and sent on; 1: would have to wait. */
int ring_progress(struct ring *ring);

void ring_cancel(struct ring *ring);

/* A block size for segments of at most this many bytes. */
size_t ring_block(size_t segment);

#endif
