/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: what the pods bound to each node take from it: the sum of their requests, their host
 * ports, and the anti-affinity of pods. The driver's caches add and remove pods and nodes;
 * driver_queue.c makes a struct cluster of it.
 *
 * Of resources with other names than cpu, memory, ephemeral-storage and pods only those that the
 * node offers are summed up: a tenant that invents names costs nothing here.
 */
#ifndef HVD_OPERATOR_DRIVER_USAGE_H
#define HVD_OPERATOR_DRIVER_USAGE_H

#include "core/base/list.h"
#include "operator/api/store.h"
#include "operator/objects/node.h"
#include "operator/objects/pod.h"
#include "operator/reconcile/fit.h"

struct usage {
    struct store nodes; /* struct usage_node, by the node's name */
    struct store anti;  /* struct usage_terms, by the text of antiaffinity_text() */
};

struct usage_node;
struct usage_more;
struct usage_terms;

/* The resources, ports and anti-affinity by which one pod uses its node. A cluster has many pods,
 * so the struct is kept small. */
struct usage_pod {
    struct list link;        /* in its node's list */
    struct usage_node *at;   /* NULL: not counted */
    char *node;              /* until it is counted; NULL: the pod uses no node */
    struct usage_more *more; /* ports and anti-affinity; NULL: none */
    uint64_t owner;          /* usage_owner() of its controller */
    uint16_t others;         /* number of kinds that not all pods have */
    uint8_t base;            /* bit i set: amounts[] has one of base kind i, in this order */
    int64_t amounts[];       /* then each other kind and its amount */
};

/* A hash of the uid of a pod's controller; 0: it has none. */
uint64_t usage_owner(const char *uid);

/* The caller calls usage_pod_destroy(). NULL: no memory. */
struct usage_pod *usage_pod_make(const struct pod *pod);
/* The pod must not be counted any more, except shortly before usage_fini(). NULL is fine. */
void usage_pod_destroy(struct usage_pod *p);

/* True if both take the same amounts. */
bool usage_pod_same(const struct usage_pod *a, const struct usage_pod *b);

/* The name of its node, valid until it is removed; NULL: it uses none. */
const char *usage_pod_node(const struct usage_pod *p);

static inline bool usage_pod_counts(const struct usage_pod *p)
{
    return p && (p->at || p->node);
}

/* Counts the pod, unless it uses no node. name: for messages, copied where it is needed.
 * -ENOMEM: nothing is added. */
int usage_add(struct usage *u, struct usage_pod *p, const char *name);
/* Does nothing for a pod that is not counted. NULL is fine. */
void usage_remove(struct usage *u, struct usage_pod *p);

/* Is a pod of this controller on the node? */
bool usage_has_owner(const struct usage *u, const char *node, uint64_t owner);

/* Tells the kinds of resources that the node offers; NULL: the node is gone. -ENOMEM: the node
 * counts as full until the next call. */
int usage_set_node(struct usage *u, const char *name, const struct resources *offered);

/* What is used on the node: each kind that it offered in the last usage_set_node(). index: the
 * node's index in the cluster, for usage_anti(). The caller calls resources_fini(). -ENOMEM. */
int usage_get(struct usage *u, const char *node, int index, struct resources *ret);

/* The node's host ports in use, collected from its pods; the caller calls hostports_fini().
 * -ENOMEM. */
int usage_ports(const struct usage *u, const char *node, struct hostports *ret);

/* The anti-affinity of all pods on nodes of the cluster, after usage_get() of each of them: a copy
 * that stays valid while the usage changes. The caller calls usage_antis_fini(). -ENOMEM. */
struct usage_antis {
    struct fit_anti *list; /* [n] */
    int n;
    bool by_namespace;          /* a term asks for labels of namespaces */
    struct usage_terms **terms; /* [nterms], one reference each */
    int nterms;
    struct fit_keeper *keepers;
    char *names; /* of the keepers */
};
int usage_anti(const struct usage *u, struct usage_antis *ret);
void usage_antis_fini(struct usage_antis *a);

void usage_fini(struct usage *u);

#endif
