/* SPDX-License-Identifier: Apache-2.0
 *
 * end: the end of the log. A rank that leaves asks the root for it. The root leaves the plan that
 * is in force, and appends the end. Every rank runs the batches before it, and no other batch
 * comes.
 *
 * So it is the log that decides which operations of the rank are run. The rank alone could not:
 * when it has announced an operation, and does not wait for it, the root may have put it into a
 * batch already, which the other ranks begin.
 *
 * Part of negotiate, see negotiate_impl.h.
 */
#include "core/negotiate/negotiate_impl.h"

bool negotiate_end(struct negotiate *n)
{
    n->end.asked = true;
    return n->end.reached;
}

bool negotiate_has_ended(const struct negotiate *n)
{
    return n->end.reached;
}

int end_recv(struct negotiate *n, const struct reader *r)
{
    if (!reader_ok(r))
        return -EPROTO;
    n->end.asked = true;
    return 0;
}

void end_tick(struct negotiate *n)
{
    if (!n->end.asked || n->end.sent || n->end.reached)
        return;
    if (n->root && n->frozen) {
        n->thaw_asked = true; /* the message that ends the thaw also ends the log */
        return;
    }
    n->end.sent = true;
    if (n->root) {
        decide_end(n);
        return;
    }
    negotiate_begin(n, &n->up, UP_END);
    if (n->up.failed)
        n->failed = -ENOMEM;
    else
        n->ops.send(n->ctx, NEGOTIATE_PARENT, &n->up);
}
