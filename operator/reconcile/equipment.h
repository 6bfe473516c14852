/* SPDX-License-Identifier: Apache-2.0
 *
 * equipment: what the operator brings into every pod, so that the user's image needs nothing of
 * ours: the bundle at /hvd, the agent in front of the training container's command, what the agent
 * has to know (operator/README.md has the variables), a token of its own, a /dev/shm of a size, a
 * readiness probe. Nothing of it is more than pod security "restricted" allows. Pure; any thread.
 */
#ifndef HVD_OPERATOR_RECONCILE_EQUIPMENT_H
#define HVD_OPERATOR_RECONCILE_EQUIPMENT_H

#include <jansson.h>

#include "operator/objects/hvdjob.h"

#define EQUIPMENT_AGENT_PORT 7444 /* of each pod's agent: /ready, /metrics */

/* How this operator does it. All borrowed. */
struct equipment {
    const char *url; /* of the Service that agents dial: "https://hvd-operator.hvd-system:7443" */
    const char *ca;  /* its certificate authority, PEM */
    const char *audience; /* of the token that an agent shows */
    const char
        *bundle; /* the image with the bundle; "" or NULL: each user's image has it at /hvd */
    bool mount;  /* as an image volume, where every node's runtime can; else it is copied */
};

/* pod: what newpod() has made. -ENOMEM; it is then to be thrown away. */
int equipment_add(const struct equipment *e, const struct hvdjob *job, json_t *pod);

#endif
