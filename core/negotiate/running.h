/* SPDX-License-Identifier: Apache-2.0
 *
 * running: the batches that were handed out to the engine and are not finished, oldest first. A
 * ring buffer of tensors and one of batch sizes; both only grow. Called by negotiate; the tensors
 * are those of its table.
 */
#ifndef HVD_NEGOTIATE_RUNNING_H
#define HVD_NEGOTIATE_RUNNING_H

#include <stddef.h>
#include <stdint.h>

struct tensor;

struct running {
    struct tensor **tensors;
    size_t cap, head, len;
    uint32_t *sizes;
    size_t cap_sizes, first, n; /* n: batches */
};

void running_fini(struct running *r);

/* Makes room for one more batch of n tensors. -ENOMEM. */
int running_reserve(struct running *r, size_t n);

/* After running_reserve(): running_add() adds one tensor; running_close() ends the batch after its
 * n tensors. */
void running_add(struct running *r, struct tensor *e);
void running_close(struct running *r, uint32_t n);

/* Size of the oldest or the newest batch; there must be one. */
uint32_t running_oldest(const struct running *r);
uint32_t running_newest(const struct running *r);

/* Tensor i of the oldest or the newest batch. */
struct tensor *running_in_oldest(const struct running *r, uint32_t i);
struct tensor *running_in_newest(const struct running *r, uint32_t i);

void running_drop_oldest(struct running *r);
void running_drop_newest(struct running *r);

#endif
