/* SPDX-License-Identifier: Apache-2.0
 *
 * workers_read: the answer "workers" for the checks between machines (workers.c, workers_paths.c),
 * measured just now or captured earlier. diagnostics/workers/workers.h lists its keys. Strings are
 * the answer's.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_WORKERS_READ_H
#define HVD_DIAGNOSTICS_CHECKS_WORKERS_READ_H

#include "diagnostics/check.h"

#define WORKERS_HOST 96

#define WORKERS_CHECK(ID, CODE, RUN)                                                               \
    .id = ID, .code = CODE, .group = GROUP_WORKERS, .level = 3, .run = RUN,                        \
    .needs = "hvdrun --doctor -H h1,h2"

#define NCCL_TROUBLE                                                                               \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

/* The answer "workers", and in ret_size how many workers it describes. NULL: there is none, and
 * the result is set. */
const struct answer *workers_ask(const struct view *v, struct result *r, int *ret_size);

/* "h1 (worker 3)". Returns dst. */
const char *workers_host(const struct answer *a, int i, char dst[WORKERS_HOST]);

/* The value of worker.I.KEY, "none" if it is missing. */
const char *workers_of(const struct answer *a, int i, const char *key);

/* The first worker whose value differs from worker 0's; -1: none. */
int workers_other(const struct answer *a, int n, const char *key);

/* For qsort: ascending doubles. */
int workers_compare(const void *a, const void *b);

#endif
