/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_api: NCCL's functions, from the copy that nccl_find.h chooses. Loaded once a process, kept
 * until its end; any thread.
 *
 * What every NCCL from 2.8 on has is there; the others are NULL where this one lacks them. Whether
 * a function is there is asked of the library, what an argument may be of its version: below 2.10
 * there is no average and no bfloat16.
 */
#ifndef HVD_BACKEND_NCCL_API_H
#define HVD_BACKEND_NCCL_API_H

#include <limits.h>
#include <stdbool.h>

#include "core/backend/nccl_abi.h"
#include "core/backend/nccl_find.h"
#include "core/base/err.h"

#define NCCL_API_POINTER(name, since, result, arguments) result(*name) arguments;

struct nccl_api {
    NCCL_ABI_REQUIRED(NCCL_API_POINTER)
    NCCL_ABI_OPTIONAL(NCCL_API_POINTER)
    int version;         /* 22707, also of those before 2.9, which number themselves otherwise */
    char text[16];       /* "2.27.7" */
    int cuda;            /* that it was built for, 13000; 0: unknown (nccl_build.h) */
    char path[PATH_MAX]; /* the file */
    enum nccl_origin origin;
};

#define NCCL_OLDEST 20800

/* ncclGetVersion()'s number as major * 10000 + minor * 100 + patch; 0: it is none. */
int nccl_version_decode(int code);

/* dst: 16 bytes; "2.27.7". Returns dst. */
const char *nccl_version_text(int version, char dst[16]);

/* -ENOENT: there is no NCCL; -ELIBBAD: it does not load, lacks a function, or does not say its
 * version; -ENOTSUP: it is too old; -EEXIST: two copies, see nccl_find.h. err says which file, and
 * the doctor's code. A failure is not kept: the next call looks again. */
int nccl_api_load(const struct nccl_api **ret, struct err *err);

/* The one that is loaded, NULL: none is. */
const struct nccl_api *nccl_api_loaded(void);

/* One place, for tests and for those who ask about a file; *ret is the caller's. */
int nccl_api_open(const struct nccl_place *place, struct nccl_api *ret, struct err *err);

/* "NCCL 2.27.7 (/path/libnccl.so.2, mapped already)" */
const char *nccl_api_name(const struct nccl_api *api, char *dst, size_t size);

#endif
