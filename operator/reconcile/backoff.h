/* SPDX-License-Identifier: Apache-2.0
 *
 * backoff: the pause after the n-th loss in a row: starts at first, doubles, and stops at most.
 */
#ifndef HVD_OPERATOR_RECONCILE_BACKOFF_H
#define HVD_OPERATOR_RECONCILE_BACKOFF_H

#include <stdint.h>

#include "operator/objects/moment.h"

/* A worker that was lost is replaced after 1, 2, 4 ... 60 s; after ten minutes without a loss the
 * count begins again. A gang that did not fit is tried again after 5, 10, 20 ... 300 s. */
#define BACKOFF_LOSS     (1 * MOMENT_S)
#define BACKOFF_LOSS_MAX (60 * MOMENT_S)
#define BACKOFF_FORGET   (600 * MOMENT_S)
#define BACKOFF_GANG     (5 * MOMENT_S)
#define BACKOFF_GANG_MAX (300 * MOMENT_S)

static inline int64_t backoff(int n, int64_t first, int64_t most)
{
    int64_t pause = n > 0 ? first : 0;
    for (int i = 1; i < n && pause < most; i++)
        pause *= 2;
    return pause < most ? pause : most;
}

#endif
