/* SPDX-License-Identifier: Apache-2.0
 *
 * served: which API groups and versions the cluster has, asked at the start and every few minutes:
 * gang.h chooses back ends by it. On the api's loop.
 */
#ifndef HVD_OPERATOR_DRIVER_SERVED_H
#define HVD_OPERATOR_DRIVER_SERVED_H

#include "operator/api/api.h"

struct served;

/* changed: the first answer is there, or another one than before. */
int served_open(struct served **ret, struct api *api, void (*changed)(void *arg), void *arg,
                struct err *err);

/* "scheduling.k8s.io/v1alpha2 apps/v1 ...", NULL before the first answer. */
const char *served_text(const struct served *s);

/* NULL is fine. */
void served_close(struct served *s);

#endif
