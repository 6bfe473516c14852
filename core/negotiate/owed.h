/* SPDX-License-Identifier: Apache-2.0
 *
 * owed: the queue of bound batches that this rank owes after a thaw. See owed.c.
 */
#ifndef HVD_NEGOTIATE_OWED_H
#define HVD_NEGOTIATE_OWED_H

#include "core/base/list.h"
#include "core/negotiate/tensor.h"

struct owed_batch {
    struct list at; /* owed.queue */
    bool planned;   /* of the plan that was left; else it waits behind those */
    uint32_t n;
    struct tensor *tensors[];
};

struct owed {
    struct list queue;
    bool open;           /* a rank at or below this node may owe a batch */
    int nsettled;        /* children that have said that no rank at or below them does */
    uint64_t since;      /* since when the first batch is the first */
    uint64_t stall_told; /* when it was last reported as stalled */
    uint64_t waits;      /* since when a caller waits behind a tensor that it lacks; 0: none does */
    char why[1000];      /* why this rank cannot run it; empty: it can */
    bool why_sent;
};

#endif
