/* SPDX-License-Identifier: Apache-2.0
 *
 * stall: the root's inquiry about operations that make no progress, and a node's part in it. See
 * stall.c.
 */
#ifndef HVD_NEGOTIATE_STALL_H
#define HVD_NEGOTIATE_STALL_H

#include "core/base/buf.h"
#include "core/negotiate/rankset.h"

#include <hvd.h>

enum {
    STALL_ITEMS = 16, /* tensors in one inquiry; further tensors wait for the next inquiry */
    STALL_TEXT = 80,  /* bytes of the text about what a rank waits in */
};

struct stall_item {
    char name[HVD_MAX_NAME + 1];
    uint8_t kind;
    uint64_t age; /* ns that the tensor has waited or run */
    bool running; /* the tensor is in a batch that was handed out on the root */
    bool owed;    /* a rank lacks it for a batch that other ranks have begun */
    /* Ranks where the tensor is submitted. Of a running one: ranks that do not owe its batch, and
     * whose input is complete. */
    struct rankset have;
};

struct stall {
    struct stall_item items[STALL_ITEMS];
    int nitems;
    struct stall_hint {
        char name[HVD_MAX_NAME + 1];
        uint8_t kind;
        bool fresh; /* not processed yet */
        bool owed;
        uint64_t age, told;
    } hints[STALL_ITEMS]; /* on the root: tensors that only lower nodes know of */
    uint32_t number;      /* number of the inquiry */
    bool open;
    uint64_t opened;
    int nanswers;            /* children that have answered */
    struct rankset answered; /* ranks */
    struct rankset scratch;
    struct buf ranks;     /* u32 rank, u64 ns since its last call, str what it waits in; repeated */
    uint64_t due;         /* when the list of partial tensors has to be checked */
    uint64_t run_told;    /* when a batch without progress was last reported */
    uint64_t last_call;   /* time of the last negotiate_submit() on this rank */
    uint64_t still_since; /* since when the oldest batch is the same */
    uint64_t still_mark;  /* its number */
};

#endif
