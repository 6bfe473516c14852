/* SPDX-License-Identifier: Apache-2.0
 *
 * running: the batches that were handed out to the engine and are not finished. They are numbered
 * in the order in which they were handed out, and finish in any order. A ring buffer of batches and
 * one of tensors; both only grow. Called by negotiate; the tensors are those of its table.
 */
#ifndef HVD_NEGOTIATE_RUNNING_H
#define HVD_NEGOTIATE_RUNNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor;

struct running_batch {
    bool bound;     /* see negotiate.h */
    bool frozen;    /* it comes from the plan that is in force */
    bool owed;      /* see negotiate.h */
    uint64_t index; /* of a frozen batch, counted from the beginning of the plan */
    bool live;      /* set by running_close(): not finished and not dropped */
    uint32_t n;     /* tensors */
    uint64_t start; /* place of the first one */
};

struct running {
    struct tensor **tensors;
    size_t cap;
    uint64_t head, tail; /* places in use, counted from the beginning */
    struct running_batch *batches;
    size_t cap_batches;
    uint64_t first; /* number of the oldest live batch; equals `next` if there is none */
    uint64_t next;  /* number of the next batch: so many were handed out */
    size_t n;       /* live batches */
    size_t nbound;  /* of these, bound ones */
};

void running_fini(struct running *r);

/* Makes room for one more batch of n tensors. -ENOMEM. */
int running_reserve(struct running *r, size_t n);

/* After running_reserve(): running_add() adds one tensor; running_close() ends the batch after its
 * tensors and returns its number. */
void running_add(struct running *r, struct tensor *e);
uint64_t running_close(struct running *r, struct running_batch batch);

/* NULL: finished, dropped, or never handed out. */
struct running_batch *running_get(const struct running *r, uint64_t number);

struct tensor *running_tensor(const struct running *r, const struct running_batch *b, uint32_t i);

/* Forgets a live batch. */
void running_remove(struct running *r, uint64_t number);

#endif
