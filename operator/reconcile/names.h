/* SPDX-License-Identifier: Apache-2.0
 *
 * names: what the objects of a job are called. The same job gives the same names: whoever makes an
 * object twice is told so by the API server.
 */
#ifndef HVD_OPERATOR_RECONCILE_NAMES_H
#define HVD_OPERATOR_RECONCILE_NAMES_H

#include <stddef.h>

#include "operator/objects/hvdjob.h"

#define NAMES_MAX 256

/* "digits-3-1": worker 3 at its second attempt. */
void names_pod(const struct hvdjob *job, int worker, int attempt, char dst[NAMES_MAX]);

/* "hvd.dev/job=digits": what lists the job's pods. */
void names_selector(const struct hvdjob *job, char dst[NAMES_MAX]);

#endif
