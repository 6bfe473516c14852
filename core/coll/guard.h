/* SPDX-License-Identifier: Apache-2.0
 *
 * guard: what coll.c puts round an operation of an elastic job whose algorithm cannot be finished
 * by survivors alone: inputs that are outputs too are read from a copy, so that the operation can
 * be begun anew, and behind it there is a barrier: who passes it knows that everybody has the
 * result. Private to core/coll; under the progress lock.
 */
#ifndef HVD_COLL_GUARD_H
#define HVD_COLL_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/coll/coll.h"

struct guard {
    bool on;     /* for the operation under way */
    bool behind; /* it is done here; the barrier is under way */
    struct coll_op op;
    struct coll_tensor *tensors; /* of op */
    size_t cap, n;               /* n: those in use, 0: nothing is saved */
    uint8_t *saved;
    size_t saved_cap;
};

/* A copy of op that reads from saved memory where it would overwrite what it reads. -ENOMEM. */
int guard_begin(struct guard *g, const struct coll_op *op, const struct coll_op **ret);

/* Brings saved inputs back to where they were. */
void guard_restore(const struct guard *g);

void guard_fini(struct guard *g);

#endif
