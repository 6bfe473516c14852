/* SPDX-License-Identifier: Apache-2.0
 *
 * control: the control links to parent and children in negotiation's tree, and the farewell. (lock)
 *
 * A message is a byte that says what it is, then a message of negotiate's or a farewell {u32 rank,
 * u64 frozen batches it has done since the plan began}. A rank that shuts down says farewell; it
 * goes up to the root and from there to everybody, behind all batches it had a part in. What its
 * peers have under way beyond those fails with "rank 2 has shut down".
 */
#ifndef HVD_ENGINE_CONTROL_H
#define HVD_ENGINE_CONTROL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"

struct engine;
struct link;

struct control {
    int parent;    /* rank, -1 on the root */
    int *children; /* ranks */
    int nchildren;
    struct link **links; /* the children's, then the parent's; NULL: gone in peace */
    bool parted;         /* one of them is in the next epoch already (mesh_part) */
    struct buf in, out;
    bool *left; /* [size] has said farewell */
    int nleft;
    int first_left;   /* the rank that was first */
    uint64_t left_at; /* the fewest frozen batches that one who left has done */
    uint64_t left_ns; /* when the first farewell came */
};

int control_init(struct engine *e, struct err *err);
void control_fini(struct control *c);

/* negotiate_ops.send */
int control_send(void *ctx, int to, const struct buf *msg);

/* Takes what came; true when something did. */
bool control_progress(struct engine *e);

/* Sends what is queued; 0: all is gone. */
int control_flush(struct engine *e);

/* Tells everybody that this rank leaves. */
void control_farewell(struct engine *e);

#endif
