/* SPDX-License-Identifier: Apache-2.0
 *
 * signals: the taints and labels by which other programs announce that a node is going to be
 * drained, and what workers on it do. The administrator may change the list. Pure.
 */
#ifndef HVD_OPERATOR_OBJECTS_SIGNALS_H
#define HVD_OPERATOR_OBJECTS_SIGNALS_H

#include "operator/objects/node.h"

/* The higher, the sooner workers leave the node. */
enum signal_action {
    SIGNAL_NONE,
    SIGNAL_NOTE,    /* nothing, but the job's message says so */
    SIGNAL_EVICT,   /* somebody may evict the workers; the operator moves none itself */
    SIGNAL_REPLACE, /* the operator moves the workers, as the job's drain policy says */
    SIGNAL_LEAVE,   /* the operator moves the workers at once, whatever the policy */
};

#define SIGNALS_MAX   64
#define SIGNAL_CORDON "cordon" /* the key that stands for spec.unschedulable */

struct signal {
    char key[256], value[64]; /* value: of a label; "": key is a taint's, with any value */
    enum signal_action action;
};

struct signals {
    int n;
    struct signal all[SIGNALS_MAX];
};

struct node_drain {
    enum signal_action action;
    char what[352]; /* for people: "cordoned", "taint KEY", "label KEY=VALUE"; "": nothing */
};

/* The built-in list. */
void signals_default(struct signals *ret);

/* Parses "KEY:ACTION,KEY=VALUE:ACTION,...": a taint's key, or a label with its value. An entry
 * replaces the one for the same taint or label, or is added. ACTION: none, note, evict, replace,
 * leave. -EINVAL: err names the entry; s may be half changed then. */
int signals_change(struct signals *s, const char *text, struct err *err);

/* The strongest signal on the node. n NULL: none. */
void signals_look(const struct signals *s, const struct node *n, struct node_drain *ret);

#endif
