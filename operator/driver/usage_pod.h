/* SPDX-License-Identifier: Apache-2.0
 *
 * usage_pod: the rarer parts of struct usage_pod, and its amounts; only usage.c and usage_pod.c
 * know them.
 */
#ifndef HVD_OPERATOR_DRIVER_USAGE_POD_H
#define HVD_OPERATOR_DRIVER_USAGE_POD_H

#include "operator/driver/usage.h"
#include "operator/objects/antiaffinity.h"

struct usage_anti;

/* Host ports and anti-affinity, which few pods have. */
struct usage_more {
    struct usage_pod *pod;
    struct hostports ports;
    char *anti;            /* the text of its anti-affinity until it is counted; NULL: none */
    struct usage_anti *at; /* its terms in the table; NULL: none, or not counted */
    struct list link;      /* in usage_anti.pods */
    char *name;            /* "namespace/name"; NULL: not needed */
};

/* Adds times the pod's amounts, of those kinds that sum has. */
void usage_pod_count(const struct usage_pod *p, int times, struct resources *sum);

#endif
