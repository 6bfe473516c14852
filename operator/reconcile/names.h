/* SPDX-License-Identifier: Apache-2.0
 *
 * names: names of a job's objects. They depend on the job alone, so that the API server refuses to
 * create the same object twice (AlreadyExists).
 */
#ifndef HVD_OPERATOR_RECONCILE_NAMES_H
#define HVD_OPERATOR_RECONCILE_NAMES_H

#include <stddef.h>

#include "operator/objects/hvdjob.h"

#define NAMES_MAX 256

/* "digits-3-1": worker 3, its second attempt. */
void names_pod(const struct hvdjob *job, int worker, int attempt, char dst[NAMES_MAX]);

/* "hvd.dev/job=digits": the label selector of the job's pods. */
void names_selector(const struct hvdjob *job, char dst[NAMES_MAX]);

#endif
