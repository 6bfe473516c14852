/* SPDX-License-Identifier: Apache-2.0
 *
 * guard: makes an operation of an elastic job repairable if its algorithm has no way for survivors
 * to finish it. Inputs that are also outputs are read from retained copies, so that the operation
 * can be restarted; and after it there is a barrier: a rank that has passed it knows that every
 * rank has the result. Private to core/coll; under the progress lock.
 */
#ifndef HVD_COLL_GUARD_H
#define HVD_COLL_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/coll.h"

struct guard {
    bool on;     /* in use for the current operation */
    bool behind; /* this rank has finished the operation; the barrier is in progress */
    struct coll_op op;
    struct coll_tensor *tensors; /* of op */
    size_t cap, n;               /* n: retained copies in use; 0: none */
    uint8_t *saved;
    size_t saved_cap;
};

/* Sets *ret to a duplicate of op that reads from retained copies where op would overwrite its
 * input. -ENOMEM. */
int guard_begin(struct guard *g, const struct coll_op *op, const struct coll_op **ret);

/* Copies the retained inputs back to where they were. */
void guard_restore(const struct guard *g);

void guard_fini(struct guard *g);

#endif
