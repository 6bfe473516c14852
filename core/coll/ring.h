/* SPDX-License-Identifier: Apache-2.0
 *
 * ring: reduce-scatter and allgather in a ring of links, as one pipeline.
 *
 * The data is cut into as many segments as the ring has members. Segment k starts at member k, each
 * next member adds what it has, and member k-1 holds the sum, which then goes round once more. A
 * segment is sent in blocks: a block is forwarded as soon as this member has added its share, so
 * that all links are busy all the time. The ring moves bytes; the caller interprets them, in three
 * callbacks. Runs under the progress lock; memory is the caller's.
 */
#ifndef HVD_COLL_RING_H
#define HVD_COLL_RING_H

#include "core/coll/algorithm.h"
#include "core/coll/layout.h"

/* Callbacks for bytes [off, off + len) of segment seg. For one segment off increases from call
 * to call. Each may answer "not yet" (NULL or 1) and is then called again. */
struct ring_ops {
    /* Returns this member's own share: in at, where it may be written, or elsewhere. It must
     * stay valid until the ring is done, or until at is overwritten by merge or deliver. */
    const void *(*first)(void *ctx, int seg, size_t off, size_t len, void *at);
    /* Combines the partial sum and this member's own share into at; last: makes the final
     * result. */
    int (*merge)(void *ctx, int seg, size_t off, size_t len, void *at, const void *partial,
                 bool last);
    /* The final result is in at. */
    int (*deliver)(void *ctx, int seg, size_t off, size_t len, const void *at);
};

/* A position in the order of messages: block off of the segment of a step. */
struct ring_place {
    int step;
    size_t off;
    struct message msg;
};

struct ring {
    int members, place; /* place: this rank's index */
    struct link *next, *prev;
    uint64_t tag;
    const size_t *offsets; /* [members + 1] byte offsets of the segments in work */
    uint8_t *work;
    uint8_t *scratch; /* a block to receive partial sums into; NULL: they are received in work */
    size_t block;     /* a multiple of every element's size */
    const struct ring_ops *ops;
    void *ctx;
    struct ring_place out, in;
    bool arrived; /* the block of in has arrived and is not merged or delivered yet */
    bool merged;  /* the block of in is merged, but not delivered yet */
};

/* Starts at the first block. The fields down to ctx are filled in by the caller. members >= 2. */
void ring_start(struct ring *ring);

/* Prepares the ring of owner `lane` of all hosts for the current operation: segment k is piece
 * lane * hosts + k of layout. offsets: [hosts + 1], filled here and used by the ring. Takes the
 * work buffer of coll, and a block of it for scratch on request. */
int ring_open(struct ring *ring, struct coll *coll, const struct layout *layout, int lane,
              size_t *offsets, bool scratch, struct err *err);

/* 0: everything has been delivered on this rank and forwarded; 1: would have to wait. */
int ring_progress(struct ring *ring);

void ring_cancel(struct ring *ring);

/* The block size for segments of at most this many bytes. */
size_t ring_block(size_t segment);

#endif
