/* SPDX-License-Identifier: Apache-2.0
 *
 * op: a message that this rank sends or receives, from its submission to its end. The caller owns
 * the memory; between p2p_submit() and p2p_ops.done it belongs to p2p.
 */
#ifndef HVD_P2P_OP_H
#define HVD_P2P_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/list.h"

enum { P2P_ANY = -1 };

struct p2p_op {
    /* Set by the caller. */
    bool sends;
    int peer; /* its rank; of a receive also P2P_ANY */
    uint32_t tag;
    uint8_t *data; /* a sender's is only read */
    size_t bytes;  /* of a receive: room */
    bool staged;   /* data is not in host memory: its bytes go through p2p_stage */

    /* Of a receive that has ended. */
    int from;   /* the sender; P2P_ANY: no message has been found for it yet */
    size_t got; /* its bytes */
    /* Of a receive that has ended well, where the caller has to copy the bytes to `data`; at most
     * one of these. */
    uint8_t *kept;         /* the bytes, in memory of malloc() */
    struct p2p_op *source; /* a send of this rank, which ends with the copy */

    /* p2p's own. */
    struct list at;   /* in the list that its state has */
    struct list all;  /* in p2p.ops */
    uint64_t number;  /* rises with every submission */
    bool posted;      /* of a receive: it waits in match */
    uint64_t serial;  /* of a large message: its number among those that its sender sends here */
    uint64_t id;      /* its id on this rank, and */
    uint64_t peer_id; /* on the other rank */
    uint64_t address; /* of the bytes, in the sender's process */
    bool copies;      /* they are read from there */
    bool flies;       /* they go by p2p_stage.fly() */
    bool confirmed;   /* of a send that flies: the receiver has said that it has them */
    size_t moved;     /* bytes of a large message that were sent or received, */
    size_t expected;  /* of a receive: and of the whole message */
};

#endif
