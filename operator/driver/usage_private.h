/* SPDX-License-Identifier: Apache-2.0
 *
 * usage_private: the parts of struct usage, which only usage.c, usage_pod.c and usage_anti.c know.
 */
#ifndef HVD_OPERATOR_DRIVER_USAGE_PRIVATE_H
#define HVD_OPERATOR_DRIVER_USAGE_PRIVATE_H

#include "operator/driver/usage.h"
#include "operator/objects/antiaffinity.h"

struct usage_node {
    struct store_entry *entry;
    struct resources sum; /* has the kinds that the node offers */
    struct list pods;     /* usage_pod.link */
    struct list seats;    /* usage_seat.on_node */
    size_t npods;
    bool there;   /* the node exists */
    bool unknown; /* no memory for the sum: the node counts as full */
    int index;    /* set by usage_get() */
};

/* Anti-affinity that is stored once, however many pods have it. */
struct usage_terms {
    struct store_entry *entry; /* in usage.anti; NULL: no pod has these terms any more */
    struct antiaffinity anti;
    struct list seats; /* usage_seat.of_terms */
    int refs;          /* the table's and those of struct usage_antis */
};

/* The pods on one node that have the same terms: one of them stands for all. */
struct usage_seat {
    struct usage_terms *terms;
    struct usage_node *node;
    struct list of_terms, on_node;
    struct list pods; /* usage_more.link, not empty */
};

/* Host ports and anti-affinity, which few pods have. */
struct usage_more {
    struct hostports ports;
    char *anti;              /* the text of its anti-affinity until it is counted; NULL: none */
    struct usage_seat *seat; /* NULL: it has no anti-affinity, or is not counted */
    struct list link;        /* in usage_seat.pods */
    char *name;              /* "namespace/name"; NULL: not needed */
};

/* Adds times the pod's amounts, of those kinds that sum has. */
void usage_pod_count(const struct usage_pod *p, int times, struct resources *sum);

/* usage_anti.c: counts the anti-affinity of a pod on that node, which has some. -ENOMEM. */
int usage_anti_add(struct usage *u, struct usage_node *node, struct usage_more *more);
/* Does nothing if it is not counted. */
void usage_anti_remove(struct usage *u, struct usage_more *more);
void usage_anti_fini(struct usage *u);

#endif
