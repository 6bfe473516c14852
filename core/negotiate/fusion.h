/* SPDX-License-Identifier: Apache-2.0
 *
 * fusion: the root puts tensors that every rank has into batches. Allreduces of one kind gather in
 * a bucket until it is full or somebody flushes it; everything else is a batch of its own. Members
 * of a group wait for each other and go out together.
 *
 * Called by negotiate on the root only. Tensors are linked through tensor.out while they are here.
 */
#ifndef HVD_NEGOTIATE_FUSION_H
#define HVD_NEGOTIATE_FUSION_H

#include "core/negotiate/tensor.h"

enum flush_why { FLUSH_FULL, FLUSH_COMPLETE, FLUSH_URGED, FLUSH_TIMER };

enum { FUSION_BUCKETS = 16 };

struct bucket {
    struct list tensors; /* tensor.out */
    size_t n;
    uint64_t bytes;
    struct signature key;
    uint64_t since;
    bool urged;
};

struct group;

struct fusion_ops {
    /* The tensors of a batch, through tensor.out; the callback empties the list. */
    void (*batch)(void *ctx, struct list *tensors, size_t n, enum flush_why why);
    /* A member of a group of which another member failed. */
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

/* Forgets everything; the tensors are the caller's. */
void fusion_reset(struct fusion *f);

/* Every rank has e. -ENOMEM. */
int fusion_add(struct fusion *f, struct tensor *e, uint64_t now);

/* A tensor that every rank has failed with this code and text: so does the rest of its group.
 * -ENOMEM. */
int fusion_failed(struct fusion *f, const struct signature *sig, int code, const char *text);

/* Bucket i goes out. The last bucket takes its place. */
void fusion_flush(struct fusion *f, int i, enum flush_why why);

/* Somebody waits for e, which is here: its bucket is urged. */
void fusion_urge(struct fusion *f, const struct tensor *e);

/* Nothing is held back. */
static inline bool fusion_empty(const struct fusion *f)
{
    return f->nbuckets == 0 && !f->groups;
}

#endif
