/* SPDX-License-Identifier: Apache-2.0
 *
 * use: loads the fake libcuda.so.1 of this build folder into a test program. It is loaded by its
 * path before anything else asks for libcuda.so.1: that is its soname, so the loader then finds it.
 */
#ifndef HVD_TESTS_FAKE_CUDA_USE_H
#define HVD_TESTS_FAKE_CUDA_USE_H

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/cuda/control.h"
#include "tests/harness/build_path.h"

/* Writes the path of the fake libnccl.so.2 of that version ("2.27") to ret. */
static inline void fake_nccl_path(const char *version, char ret[PATH_MAX])
{
    char part[64];
    snprintf(part, sizeof(part), "tests/fake/nccl-%s/libnccl.so.2", version);
    build_path(part, ret);
}

/* Loads tests/fake/NAME.so. Returns its control.h table, NULL if it has none. If HVD_KERNELS is not
 * set, it gets this program's path: hvd reads the file, and the fake accepts any contents. */
static inline const struct fake_cuda_control *fake_cuda_use(const char *name)
{
    char part[64], path[PATH_MAX];
    snprintf(part, sizeof(part), "tests/fake/%s.so", name);
    build_path(part, path);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    setenv("HVD_KERNELS", "/proc/self/exe", 0);
    return dlsym(handle, "fake_cuda_control");
}

#endif
