/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_api: NCCL's library: which libnccl.so.2 this process is to use, and its functions. Loaded
 * once a process, kept until its end; any thread.
 *
 * In this order: the copy that is mapped already (a framework has loaded it); HVD_NCCL_LIB; the
 * copy that belongs to a mapped torch; what the loader finds (LD_LIBRARY_PATH, then the system's
 * folders); Python packages of VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH. A second copy is never loaded
 * beside a mapped one: it would not know the communicators of the first. Where two are mapped, one
 * must be LD_PRELOAD's.
 *
 * NCCL 2.14 is the oldest: the first with communicators whose calls do not wait for other ranks
 * (ncclCommInitRankConfig).
 */
#ifndef HVD_BACKEND_NCCL_API_H
#define HVD_BACKEND_NCCL_API_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/backend/nccl_abi.h"
#include "core/base/err.h"

enum nccl_origin {
    NCCL_MAPPED,   /* already loaded in this process; path is the dynamic loader's name of it */
    NCCL_IN_TORCH, /* loaded, linked statically into torch: path is libtorch_cuda.so */
    NCCL_ASKED,    /* HVD_NCCL_LIB */
    NCCL_OF_TORCH,
    NCCL_LOADER, /* path is "libnccl.so.2": only loading it tells whether it is there */
    NCCL_PACKAGE,
};

struct nccl_place {
    enum nccl_origin origin;
    char path[PATH_MAX];
};

struct nccl_places {
    int n;
    struct nccl_place v[8];
};

/* The places to try, best first, in another process that has loaded the torch in this folder of
 * Python packages (NULL: no torch) and not NCCL. Ignores what the calling process has mapped; reads
 * the environment. For programs that describe other processes. */
void nccl_find_for(const char *site, struct nccl_places *ret);

/* "mapped already", "HVD_NCCL_LIB", "beside torch", ... */
const char *nccl_origin_name(enum nccl_origin origin);

#define NCCL_API_POINTER(name, result, arguments) result(*name) arguments;

struct nccl_api {
    NCCL_ABI_FUNCTIONS(NCCL_API_POINTER)
    int version;   /* 22707 for 2.27.7; versions before 2.9, which number themselves in another way,
                      are converted */
    char text[16]; /* "2.27.7" */
    int cuda;      /* the CUDA version that NCCL was built for, 13000; 0: unknown */
    char path[PATH_MAX]; /* the file */
    enum nccl_origin origin;
};

#define NCCL_OLDEST 21400

/* "In progress" counts as success: communicators do not block. */
static inline bool nccl_failed(int result)
{
    return result != NCCL_ABI_SUCCESS && result != NCCL_ABI_IN_PROGRESS;
}

/* ncclGetVersion()'s number as major * 10000 + minor * 100 + patch; 0: code is no version. */
int nccl_version_decode(int code);

/* dst: 16 bytes; "2.27.7". Returns dst. */
const char *nccl_version_text(int version, char dst[16]);

/* Loads NCCL, once per process. -ENOENT: there is no NCCL; -ELIBBAD: it does not load, lacks
 * a function, or does not say its version; -ENOTSUP: it is too old; -EEXIST: two copies
 * are mapped, or HVD_NCCL_LIB names another one than is mapped. err says which file, and the
 * doctor's code. A failure is not kept: the next call looks again. */
int nccl_api_load(const struct nccl_api **ret, struct err *err);

/* Loads NCCL from one place into *ret, which the caller owns. For tests and for programs that
 * describe a file. */
int nccl_api_open(const struct nccl_place *place, struct nccl_api *ret, struct err *err);

/* "2.27.7 (/path/libnccl.so.2, mapped already)" */
const char *nccl_api_name(const struct nccl_api *api, char *dst, size_t size);

/* The CUDA version that an NCCL was built for. Its interface does not say; the file does, in the
 * text that it prints with NCCL_DEBUG=VERSION: 13000 for "NCCL version 2.27.7+cuda13.0" somewhere
 * in these foreign bytes, or in the read-only data of a shared object; 0: unknown, for any reason.
 */
int nccl_build_parse(const void *bytes, size_t n);
int nccl_build_of(const char *path);

/* -ENOTSUP: NCCL_COMM_BLOCKING is set, perhaps by NCCL itself from its configuration file, which it
 * reads when the first communicator is created. */
int nccl_api_refuse_blocking(const struct nccl_api *api, struct err *err);

#endif
