/* SPDX-License-Identifier: Apache-2.0
 *
 * leader_label: the label hvd.dev/leader on this operator's own pod. The Service that agents dial
 * selects it. Writes are repeated until one succeeds, or the pod does not exist. While this
 * operator leads it looks every 30 s, first at once, which pods have the label: it removes those of
 * other pods (a leader whose node was lost cannot do so itself), and sets its own again.
 */
#ifndef HVD_OPERATOR_DRIVER_LEADER_LABEL_H
#define HVD_OPERATOR_DRIVER_LEADER_LABEL_H

#include <stdbool.h>

#include "operator/api/api.h"

struct leader_label;

/* Removes the label first: a process that was killed in this pod may have left it. */
int leader_label_open(struct leader_label **ret, struct api *api, const char *namespace,
                      const char *pod, struct err *err);

void leader_label_set(struct leader_label *l, bool leads);

/* True if the last write succeeded, or the pod does not exist. */
bool leader_label_settled(const struct leader_label *l);

/* NULL is fine. */
void leader_label_close(struct leader_label *l);

#endif
