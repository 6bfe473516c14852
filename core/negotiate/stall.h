/* SPDX-License-Identifier: Apache-2.0
 *
 * stall: the root's inquiry into what does not go on, and a node's part in it. See stall.c.
 */
#ifndef HVD_NEGOTIATE_STALL_H
#define HVD_NEGOTIATE_STALL_H

#include "core/base/buf.h"
#include "core/negotiate/rankset.h"

#include <hvd.h>

enum {
    STALL_ITEMS = 16, /* tensors in one inquiry; the others wait for the next */
    STALL_TEXT = 80,  /* what a rank waits in, cut */
};

struct stall_item {
    char name[HVD_MAX_NAME + 1];
    uint8_t kind;
    uint64_t age;        /* ns it has waited or run */
    bool running;        /* every rank has had it */
    struct rankset have; /* ranks where it is submitted */
};

struct stall {
    struct stall_item items[STALL_ITEMS];
    int nitems;
    struct stall_hint {
        char name[HVD_MAX_NAME + 1];
        uint8_t kind;
        bool fresh; /* not looked at yet */
        uint64_t age, told;
    } hints[STALL_ITEMS]; /* root: of tensors that it has not heard of itself */
    uint32_t number;      /* of the inquiry */
    bool open;
    uint64_t opened;
    int nanswers;            /* of children */
    struct rankset answered; /* ranks */
    struct rankset scratch;
    struct buf ranks;     /* u32 rank, u64 quiet ns, str what it waits in */
    uint64_t due;         /* when the list of partial tensors is worth a look */
    uint64_t run_told;    /* when batches standing still were last reported */
    uint64_t last_call;   /* of negotiate_submit() here */
    uint64_t still_since; /* no batch was handed out or done since; */
    uint64_t still_mark;  /* their sum then */
};

#endif
