/* SPDX-License-Identifier: Apache-2.0
 *
 * names: see names.h.
 */
#include "operator/reconcile/names.h"

#include <stdio.h>

#include "operator/objects/pod.h"

void names_pod(const struct hvdjob *job, int worker, int attempt, char dst[NAMES_MAX])
{
    snprintf(dst, NAMES_MAX, "%.200s-%d-%d", job->name, worker, attempt);
}

void names_selector(const struct hvdjob *job, char dst[NAMES_MAX])
{
    snprintf(dst, NAMES_MAX, POD_LABEL_JOB "=%.200s", job->name);
}
