/* SPDX-License-Identifier: Apache-2.0
 *
 * drain: decides when the workers of a job leave nodes that are being drained. A job may delay the
 * drain of a node for the administrator's limit at most, counted from the moment at which one of
 * its workers was first seen on that node while it was drained (status.drains). Pure.
 */
#ifndef HVD_OPERATOR_RECONCILE_DRAIN_H
#define HVD_OPERATOR_RECONCILE_DRAIN_H

#include "operator/objects/hvdjob.h"
#include "operator/objects/signals.h"

struct drain_node {
    char *name;
    struct node_drain drain;
};

/* The nodes with a signal, sorted by name. */
struct drains {
    struct drain_node *all;
    int n;
    int64_t limit; /* ms: how long a job may delay a drain */
};

/* NULL: the node has no signal. node may be NULL. */
const struct drain_node *drains_find(const struct drains *d, const char *node);

/* Is no worker placed on such a node? */
static inline bool drain_closes(const struct drain_node *d)
{
    return d && d->drain.action >= SIGNAL_REPLACE;
}

/* Has the job delayed the drain of this node for the limit, as its status says? node may be NULL.
 */
bool drain_over(const struct hvdjob_status *st, const struct drains *d, const char *node);

#endif
