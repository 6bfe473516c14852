/* SPDX-License-Identifier: Apache-2.0
 *
 * budget: a projection of a PodDisruptionBudget: the fields that decide whether a pod of a job may
 * be evicted. Pure.
 */
#ifndef HVD_OPERATOR_OBJECTS_BUDGET_H
#define HVD_OPERATOR_OBJECTS_BUDGET_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "operator/objects/pod.h"

struct budget {
    char uid[POD_UID_MAX], owner[POD_UID_MAX]; /* owner: the controller's uid, "": none */
    int min_available, max_unavailable;        /* -1: not set, or in per cent */
    bool always;                               /* pods that are not ready may always be evicted */
    uint64_t selector;                         /* budget_selector_hash() of spec.selector */
};

/* A number for this selector, the same for equal ones. Not cryptographic. */
uint64_t budget_selector_hash(json_t *selector);

/* Parses the PodDisruptionBudget j. -EINVAL: j has no uid; ret is untouched then. */
int budget_parse(json_t *j, struct budget *ret, struct err *err);

#endif
