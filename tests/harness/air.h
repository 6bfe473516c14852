/* SPDX-License-Identifier: Apache-2.0
 *
 * air: the messages that fly from one rank to another in a test of p2p (p2p_stage.fly), in order:
 * an air has the senders' ends, another one the receivers'.
 */
#ifndef HVD_TESTS_HARNESS_AIR_H
#define HVD_TESTS_HARNESS_AIR_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/p2p/op.h"

enum { AIR_MOST = 64 };

struct air {
    struct air_end {
        struct p2p_op *op;
        bool over; /* the bytes have gone over */
    } ends[AIR_MOST];
    int n;
};

static inline void air_enter(struct air *a, struct p2p_op *op)
{
    if (a->n == AIR_MOST)
        abort();
    a->ends[a->n++] = (struct air_end){.op = op};
}

/* Takes the operation out, if it is there. */
static inline void air_leave(struct air *a, const struct p2p_op *op)
{
    int at = 0;
    while (at < a->n && a->ends[at].op != op)
        at++;
    if (at < a->n)
        memmove(&a->ends[at], &a->ends[at + 1], (size_t)(--a->n - at) * sizeof(a->ends[0]));
}

/* The oldest end whose bytes have not gone over; NULL: there is none. */
static inline struct air_end *air_first(struct air *a)
{
    int at = 0;
    while (at < a->n && a->ends[at].over)
        at++;
    return at < a->n ? &a->ends[at] : NULL;
}

/* Takes out the oldest end, if its bytes have gone over; else NULL. */
static inline struct p2p_op *air_land(struct air *a)
{
    struct p2p_op *op = a->n > 0 && a->ends[0].over ? a->ends[0].op : NULL;
    if (op)
        air_leave(a, op);
    return op;
}

#endif
