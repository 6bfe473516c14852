/* SPDX-License-Identifier: Apache-2.0
 *
 * discovery: lists the API groups and versions that the cluster serves, at the start and every
 * 5 minutes. gang.h chooses gang back ends by them. On the api's loop.
 */
#ifndef HVD_OPERATOR_DRIVER_DISCOVERY_H
#define HVD_OPERATOR_DRIVER_DISCOVERY_H

#include "operator/api/api.h"
#include "operator/api/problem.h"

struct discovery;

/* Calls changed when the list of groups has arrived for the first time, or differs from the last
 * one. */
int discovery_open(struct discovery **ret, struct api *api, void (*changed)(void *arg), void *arg,
                   struct err *err);

/* The API groups that the API server serves: "scheduling.k8s.io/v1alpha2 apps/v1 ...". NULL until
 * the first GET /apis has succeeded. */
const char *discovery_text(const struct discovery *s);

/* Why the last request failed. Never NULL; its text is "" if it succeeded. */
const struct problem *discovery_problem(const struct discovery *s);

/* NULL is fine. */
void discovery_close(struct discovery *s);

#endif
