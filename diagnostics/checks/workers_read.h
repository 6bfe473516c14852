/* SPDX-License-Identifier: Apache-2.0
 *
 * workers_read: the answer "workers" for the checks between machines (workers.c, workers_paths.c):
 * what diagnostics/workers/workers.h says, or a captured one. Strings are the answer's.
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

/* The answer and how many workers it is of; NULL: the result is set. */
const struct answer *workers_ask(const struct view *v, struct result *r, int *ret_size);

/* "h1 (worker 3)". Returns dst. */
const char *workers_host(const struct answer *a, int i, char dst[WORKERS_HOST]);

/* worker.I.KEY, "none" without it. */
const char *workers_of(const struct answer *a, int i, const char *key);

/* The first worker that says something else than worker 0, -1: none. */
int workers_other(const struct answer *a, int n, const char *key);

/* For qsort: rising. */
int workers_compare(const void *a, const void *b);

#endif
