/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_api: CUDA's driver library, opened when somebody asks for it, and what it says in words.
 *
 * Any thread. Opened once a process and never closed. A machine without it is no error:
 * cuda_api_open() says so in one sentence, and nothing else is done.
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
    int version;         /* the newest CUDA that this driver is for: 13000 is 13.0 */
    char path[PATH_MAX]; /* the file */
};

/* Finds libcuda.so.1 and asks its version; no device is touched. -ENOENT: there is none; -ENOTSUP:
 * it is too old. The same answer to every call. */
int cuda_api_open(const struct cuda_api **ret, struct err *err);

/* cuda_api_open() and cuInit(), which takes up to a second (it hangs with a driver that hangs: the
 * doctor looks at that in a process of its own), and after which a forked child cannot use CUDA.
 * -ENODEV: no GPU is visible, and why. The same answer to every call. */
int cuda_api_start(const struct cuda_api **ret, struct err *err);

/* What an answer of the driver is: 0, or -errno with "<call>: <NAME> (<number>): <text>". */
int cuda_api_check(const struct cuda_api *api, unsigned code, const char *call, struct err *err);

/* -errno of it, without words. */
int cuda_api_errno(unsigned code);

/* After it nothing of this process works on that GPU any more. */
bool cuda_api_sticks(unsigned code);

#endif
