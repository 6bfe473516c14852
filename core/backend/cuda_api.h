/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_api: CUDA's driver library, opened on demand, and texts for its errors.
 *
 * Any thread. Opened once per process and never closed. On a machine without it cuda_api_open()
 * returns -ENOENT with one sentence.
 */
#ifndef HVD_BACKEND_CUDA_API_H
#define HVD_BACKEND_CUDA_API_H

#include <limits.h>
#include <stdbool.h>

#include "core/backend/cuda_abi.h"
#include "core/base/err.h"

#define CUDA_API_FIELD(field, function, parameters) unsigned(*field) parameters;
struct cuda_api {
    CUDA_REQUIRED(CUDA_API_FIELD)
    CUDA_OPTIONAL(CUDA_API_FIELD)
    int version;         /* the newest CUDA version that this driver supports: 13000 is 13.0 */
    char path[PATH_MAX]; /* the file */
};

/* Finds libcuda.so.1 and reads its version; touches no device. -ENOENT: there is none; -ENOTSUP:
 * it is too old. Later calls return the first call's result. */
int cuda_api_open(const struct cuda_api **ret, struct err *err);

/* cuda_api_open() and cuInit(). cuInit takes up to a second, and hangs if the driver does (the
 * doctor tests that in a child process). After it a forked child cannot use CUDA. -ENODEV: no
 * GPU is visible; err says why. Later calls return the first call's result. */
int cuda_api_start(const struct cuda_api **ret, struct err *err);

/* Converts a result of the driver: 0, or -errno with "<call>: <NAME> (<number>): <text>" in err. */
int cuda_api_check(const struct cuda_api *api, unsigned code, const char *call, struct err *err);

/* After this error the process cannot use the GPU any more. */
bool cuda_api_sticks(unsigned code);

#endif
