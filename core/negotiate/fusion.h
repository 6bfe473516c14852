/* SPDX-License-Identifier: Apache-2.0
 *
 * fusion: the root puts tensors that every rank has into batches. Allreduces with equal parameters
 * gather in a bucket until it is full or flushed; any other operation is a batch of its own.
 * Members of a group wait for each other and go out together.
 *
 * Called by negotiate on the root only. Tensors are linked through tensor.out while they are here.
 */
#ifndef HVD_NEGOTIATE_FUSION_H
#define HVD_NEGOTIATE_FUSION_H

#include "core/negotiate/tensor.h"

enum flush_why { FLUSH_FULL, FLUSH_COMPLETE, FLUSH_PRIORITIZED, FLUSH_TIMER };

enum { FUSION_BUCKETS = 16 };

struct bucket {
    struct list tensors; /* tensor.out */
    size_t n;
    uint64_t bytes;
    struct signature key;
    uint64_t since;
    bool prioritized;
};

struct group;

struct fusion_ops {
    /* Called for each batch with its tensors, linked through tensor.out; must empty the list. */
    void (*batch)(void *ctx, struct list *tensors, size_t n, enum flush_why why);
    /* Called for each member of a group of which another member failed. */
    void (*fail)(void *ctx, struct tensor *e, int code, const char *text);
};

struct fusion {
    uint64_t limit; /* bytes */
    struct bucket buckets[FUSION_BUCKETS];
    int nbuckets;
    struct group *groups;
    const struct fusion_ops *ops;
    void *ctx;
};

void fusion_init(struct fusion *f, uint64_t limit, const struct fusion_ops *ops, void *ctx);

/* Drops everything; the tensors belong to the caller again. */
void fusion_reset(struct fusion *f);

/* Adds e, which every rank has. -ENOMEM. */
int fusion_add(struct fusion *f, struct tensor *e, uint64_t now);

/* Reports that a tensor with this signature, which every rank has, failed with this code and text:
 * the rest of its group fails with the same ones. -ENOMEM. */
int fusion_failed(struct fusion *f, const struct signature *sig, int code, const char *text);

/* Flushes bucket i. The last bucket gets index i. */
void fusion_flush(struct fusion *f, int i, enum flush_why why);

/* Reports that a caller waits for e. Marks the bucket that e is in, if any, to be flushed before
 * its cycle ends. */
void fusion_prioritize(struct fusion *f, const struct tensor *e);

/* Returns whether no tensor is held back. */
static inline bool fusion_empty(const struct fusion *f)
{
    return f->nbuckets == 0 && !f->groups;
}

#endif
