/* SPDX-License-Identifier: Apache-2.0
 *
 * daemons: the pods that DaemonSets will soon have on nodes. A node that has just joined lacks
 * them, and they come when the DaemonSet controller and the scheduler have seen the node. Until
 * then they are counted in the usage as if they were there, so that no gang gets their room.
 *
 * Pods are awaited on a node for DAEMONS_WAIT_MS after it joined. A pod that has not come by then
 * never may, for example if its namespace's quota refuses it; nothing is awaited on that node any
 * more. So whoever may create DaemonSets cannot keep gangs off nodes for longer with pods that do
 * not exist. What is awaited is computed when a node, a DaemonSet or a pod of a DaemonSet changes.
 * Owned by the driver, one thread.
 */
#ifndef HVD_OPERATOR_DRIVER_DAEMONS_H
#define HVD_OPERATOR_DRIVER_DAEMONS_H

#include "core/base/clock.h"
#include "core/base/list.h"
#include "operator/api/store.h"
#include "operator/driver/usage.h"
#include "operator/objects/daemonset.h"

/* Of 1,000 nodes that join with 20 DaemonSets the last pod has its node after about 70 s, at the
 * 300 bindings a second of kube-scheduler. */
#define DAEMONS_WAIT_MS INT64_C(120000)
/* A node has 110 pods by default. The limits bound what a tenant with many DaemonSets costs. */
#define DAEMONS_A_NODE 64
#define DAEMONS_MAX    1000 /* DaemonSets; further ones are not awaited */

struct daemons {
    struct usage *usage;
    struct list sets; /* struct daemons_set */
    size_t nsets;
    struct store nodes;  /* struct daemons_node, by the node's name */
    struct list awaited; /* struct await.due, sorted by the node's until */
};

void daemons_init(struct daemons *d, struct usage *usage);
/* Removes what is awaited from the usage. */
void daemons_fini(struct daemons *d);

/* now: clock_ns(). The node and the DaemonSet are borrowed until the next call for the same one.
 * All return -ENOMEM: some pods are not awaited. */

/* node NULL: it is gone. until: clock_ns() until which its pods are awaited. */
int daemons_note_node(struct daemons *d, const char *name, const struct node *node, uint64_t until,
                      uint64_t now);

/* was NULL: it is new; is NULL: it is gone. *ret_changed: it is not the status alone that changed.
 */
int daemons_note_set(struct daemons *d, const struct daemonset *was, const struct daemonset *is,
                     uint64_t now, bool *ret_changed);

/* A pod of this controller was added to the usage of the node, or removed. */
int daemons_note_pod(struct daemons *d, const char *node, uint64_t owner, uint64_t now);

/* Ends the awaiting of pods that have not come in time. Returns when the next node's time ends;
 * UINT64_MAX: no pod is awaited. */
uint64_t daemons_expire(struct daemons *d, uint64_t now);

#endif
