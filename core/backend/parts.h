/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: a fixed number of page-locked buffers through which bytes go between the memory of a GPU
 * and the host, for messages. Each direction has buffers and a stream of its own: what is received
 * never waits for what is sent. Copies only begin when the program's work on their memory has
 * ended, so none of them waits on a stream for other work of the GPU. Under the progress lock, in a
 * visit of the GPU, except where noted.
 */
#ifndef HVD_BACKEND_PARTS_H
#define HVD_BACKEND_PARTS_H

#include "core/backend/gpu.h"

#define PARTS_BYTES ((size_t)1 << 20) /* size of a buffer */
#define PARTS_EACH  8                 /* buffers of a direction */

enum parts_way { PARTS_OUT, PARTS_IN, PARTS_WAYS }; /* from the GPU, to the GPU */

enum part_state {
    PART_FREE,
    PART_HOST,   /* its owner uses it on the host */
    PART_COPIES, /* the GPU reads or writes it */
};

struct part {
    enum parts_way way;
    enum part_state state;
    bool given; /* in PART_COPIES: becomes free after the copy */
    const void *owner;
    uint8_t *data;    /* [PARTS_BYTES] */
    size_t at, bytes; /* of a copy: position in the owner's memory, and length */
    struct CUevent_st *event;
};

struct parts {
    struct gpu *gpu;
    struct CUstream_st *streams[PARTS_WAYS];
    struct cuda_memory memory;
    struct part all[PARTS_WAYS][PARTS_EACH];
    size_t copying; /* parts in PART_COPIES */
};

/* Allocates everything. -ENOMEM: err says how much locked memory was asked for. */
int parts_open(struct gpu *gpu, struct parts **ret, struct err *err);

/* No copy may be in progress. NULL is allowed. */
void parts_close(struct parts *parts);

/* A free part, in state PART_HOST; NULL: all are in use. Needs no visit. */
struct part *parts_take(struct parts *parts, enum parts_way way, const void *owner);

/* The owner's part of that position, or, with SIZE_MAX, any that it uses on the host. NULL: none.
 * Needs no visit. */
struct part *parts_find(struct parts *parts, enum parts_way way, const void *owner, size_t at);

/* Begins a copy between a part in PART_HOST and memory of the GPU, in the direction of the part. On
 * failure the part is free. */
int parts_copy(struct parts *parts, struct part *part, void *memory, size_t at, size_t bytes,
               struct err *err);

/* Gives up a part: it is free at once, or after its copy. Needs no visit. */
void parts_give(struct parts *parts, struct part *part);

/* The owner's parts. Needs no visit. */
void parts_give_all(struct parts *parts, const void *owner);

/* Ends copies that the GPU has done: a part of PARTS_OUT is then in PART_HOST, one of PARTS_IN is
 * free. Returns whether any has ended. -errno: a copy has failed; it has ended like the others. */
int parts_progress(struct parts *parts, struct err *err);

/* Whether a copy of the owner's memory is in progress, also one that it has given up. Needs no
 * visit. */
bool parts_copies(const struct parts *parts, const void *owner);

#endif
