/* SPDX-License-Identifier: Apache-2.0
 *
 * label: the label on our own pod that says that we lead: the Service by which agents find the
 * leader selects it. It is written until it is as wanted; a pod that is not there is left alone.
 */
#ifndef HVD_OPERATOR_DRIVER_LABEL_H
#define HVD_OPERATOR_DRIVER_LABEL_H

#include <stdbool.h>

#include "operator/api/api.h"

struct label;

/* Takes the label away first: it may be of a process that was killed in this pod. */
int label_open(struct label **ret, struct api *api, const char *namespace, const char *pod,
               struct err *err);

void label_set(struct label *l, bool leads);

/* It is as wanted, or cannot be. */
bool label_settled(const struct label *l);

/* NULL is fine. */
void label_close(struct label *l);

#endif
