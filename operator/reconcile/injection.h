/* SPDX-License-Identifier: Apache-2.0
 *
 * injection: what the operator adds to every pod, so that the user's image needs nothing of hvd:
 * the bundle at /hvd, the agent in front of the training container's command, the agent's variables
 * (operator/README.md), a token, a /dev/shm of a suitable size, a readiness probe. All of it passes
 * the pod security standard "restricted". Pure; any thread.
 */
#ifndef HVD_OPERATOR_RECONCILE_INJECTION_H
#define HVD_OPERATOR_RECONCILE_INJECTION_H

#include <jansson.h>

#include "operator/objects/hvdjob.h"

#define INJECTION_AGENT_PORT 7444 /* port of each pod's agent: /ready, /metrics */

/* The same for all pods of this operator. Everything is borrowed. */
struct injection {
    const char
        *url; /* URL of the Service that agents dial: "https://hvd-operator.hvd-system:7443" */
    const char *ca;       /* the CA of the operator's certificate, PEM */
    const char *audience; /* audience of the agent's projected token */
    const char *bundle;   /* image; "" or NULL: each user's image has the bundle at /hvd */
    bool mount; /* mount it as an image volume (needs runtime support); else an init container
                   copies it */
};

/* pod: made by newpod(). -ENOMEM: pod is incomplete, the caller drops it. */
int injection_add(const struct injection *e, const struct hvdjob *job, json_t *pod);

#endif
