/* SPDX-License-Identifier: Apache-2.0
 *
 * whole: how many batches of the GPU lane are whole on every rank of an elastic job: a cumulative
 * barrier that no rank waits in. A rank reports, up the control links' tree, the smallest count of
 * itself and of the ranks below it, each time that it rises; the root sends the smallest count of
 * all down. A count may rise by many batches from one message to the next. The caller of each
 * function holds the progress lock.
 */
#ifndef HVD_ENGINE_WHOLE_H
#define HVD_ENGINE_WHOLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

struct circle;

struct whole {
    uint64_t own;       /* batches that are whole on this rank */
    uint64_t done;      /* batches that are whole on every rank */
    uint64_t told;      /* the smallest count of the subtree that was sent, or on the root known */
    uint64_t *of_child; /* [children] */
};

/* For the control links of a new epoch, in which every rank has `done` batches. */
int whole_begin(struct circle *c, uint64_t done, struct err *err);
void whole_fini(struct whole *w);

/* Counts one more batch as whole on this rank. In an elastic job, tells the parent if the smallest
 * count of the subtree has risen. */
void whole_add(struct circle *c);

/* Takes a message: from a child (its index) or, with the number of children, from the parent.
 * -EPROTO. */
int whole_take(struct circle *c, int from, uint64_t count);

#endif
