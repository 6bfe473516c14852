/* SPDX-License-Identifier: Apache-2.0
 *
 * hostports: the ports of its node that a pod takes: hostPort of containers and sidecars, and every
 * port of a pod in the node's network. Two pods with the same port cannot share a node. Pure; the
 * struct owns its array.
 */
#ifndef HVD_OPERATOR_OBJECTS_HOSTPORTS_H
#define HVD_OPERATOR_OBJECTS_HOSTPORTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

#define HOSTPORTS_MAX 1024 /* in one pod */

struct hostport {
    uint16_t port;
    char protocol[6]; /* "TCP" */
    char ip[46];      /* "": all addresses of the node */
};

struct hostports {
    struct hostport *all; /* [n]; a port may be there several times */
    size_t n;
};

/* From the spec of a pod or template. Ports that are no number from 1 to 65535 are ignored: the API
 * server accepts none. -E2BIG: more than HOSTPORTS_MAX. -ENOMEM. */
int hostports_parse(json_t *spec, struct hostports *ret, struct err *err);
void hostports_fini(struct hostports *p);

/* Adds all ports of more, once more where they are there already. -ENOMEM: nothing is added. */
int hostports_add(struct hostports *p, const struct hostports *more);

/* The first port of wanted that conflicts with one of taken; NULL: none does. */
const struct hostport *hostports_conflict(const struct hostports *taken,
                                          const struct hostports *wanted);

#endif
