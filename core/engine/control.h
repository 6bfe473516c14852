/* SPDX-License-Identifier: Apache-2.0
 *
 * control: the control links to parent and children in negotiation's tree, and the farewell. Called
 * with the progress lock held.
 *
 * A message is one byte of type, then either a message of negotiation, one of rendezvous, one of
 * order, a count of the GPU lane's (whole.h), a blocked rank or a question for one (blocked.h), or
 * a farewell {u32 rank}. A rank that shuts down sends a farewell up to the root, which sends it to
 * every rank, behind the end of the log (negotiate_end()), if that has come in time. Then a rank
 * that has the farewell has all batches, and the departed rank has finished them. Operations of
 * other ranks that are in no batch fail with "rank 2 has shut down".
 */
#ifndef HVD_ENGINE_CONTROL_H
#define HVD_ENGINE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct circle;
struct link;

struct control {
    int parent;    /* rank, -1 on the root */
    int *children; /* ranks */
    int nchildren;
    /* the links of the children, then that of the parent; NULL: closed after a farewell or at a
     * boundary */
    struct link **links;
    bool moved_on; /* a peer has moved on to the next epoch (mesh_part) */
    struct buf in, out;
    uint64_t *departed; /* [size] 0: the rank has sent no farewell. Else clock time of that, or of
                         * the last bytes of its messages that came after it */
    int ndeparted;
    int first_departed;   /* the rank whose farewell came first */
    uint64_t departed_ns; /* clock time of the first farewell */
};

int control_init(struct circle *c, struct err *err);
void control_fini(struct control *c);

/* The send of negotiate_ops, rendezvous_ops and order_ops. */
int control_send(void *ctx, int to, const struct buf *msg);
int control_send_rendezvous(void *ctx, int to, const struct buf *msg);

int control_send_order(void *ctx, int to, const struct buf *msg);

/* Send a blocked rank to the parent, and a question to the parent (NEGOTIATE_PARENT) or a child
 * (its rank): negotiate/cycles.h. A failure is set in e->trouble. */
int control_send_blocked(struct circle *c, const struct buf *msg);
int control_send_asked(struct circle *c, int to, const struct buf *msg);

/* Sends a count (whole.h) over links[i]. A failure is set in e->trouble. */
void control_send_whole(struct circle *c, int i, uint64_t count);

/* Handles received messages. Returns true when there were any. */
bool control_progress(struct circle *c);

/* Sends queued messages. Returns 0 when none is left to send. */
int control_flush(struct circle *c);

/* Sends this rank's farewell to all ranks. */
void control_farewell(struct circle *c);

#endif
