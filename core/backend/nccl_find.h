/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_find: which libnccl.so.2 this process is to use. Loads nothing, any thread; reads the
 * environment.
 *
 * In this order: the copy that is mapped already (a framework has loaded it); HVD_NCCL_LIB; the
 * copy that belongs to a mapped torch; what the loader finds (LD_LIBRARY_PATH, then the system's
 * folders); Python packages of VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH. A second copy is never loaded
 * beside a mapped one: it would not know the communicators of the first. Where two are mapped, one
 * must be LD_PRELOAD's.
 */
#ifndef HVD_BACKEND_NCCL_FIND_H
#define HVD_BACKEND_NCCL_FIND_H

#include <limits.h>

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

#define NCCL_PLACES 8

/* Fills ret with places to try, best first, and returns how many. -EEXIST: there are two copies in
 * the process, or HVD_NCCL_LIB names another one than is mapped. */
int nccl_find(struct nccl_place ret[NCCL_PLACES], struct err *err);

/* Like nccl_find(), for another process that has loaded the torch in this folder of Python packages
 * (NULL: no torch) and not NCCL. Ignores what the calling process has mapped. For programs that
 * describe other processes. */
int nccl_find_for(const char *site, struct nccl_place ret[NCCL_PLACES]);

/* "mapped already", "HVD_NCCL_LIB", "beside torch", ... */
const char *nccl_origin_name(enum nccl_origin origin);

#endif
