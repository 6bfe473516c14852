/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels: see cuda_kernels.h.
 */
#include "core/backend/cuda_kernels.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/backend/doctor.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/library.h"

#define FILE_NAME "hvd_kernels.fatbin"
#define FILE_MOST (64u << 20)

struct cuda_kernels {
    struct CUmod_st *module;
    struct CUfunc_st *functions[GPU_KERNELS];
    struct kernel_move move; /* parameters of the launch that is being prepared */
};

/* ---- the file ---- */

int cuda_kernels_path(char *ret, size_t size, struct err *err)
{
    static const char here;
    char file[PATH_MAX];
    const char *asked = env_get("KERNELS");
    int n;
    if (asked) {
        n = snprintf(ret, size, "%s", asked);
    } else {
        if (library_of(&here, file, sizeof(file)) < 0)
            return err_set(err, ENOENT, "libhvd.so does not know its own folder: set HVD_KERNELS");
        char *slash = strrchr(file, '/');
        *slash = '\0';
        /* for hvdrun, which is in bin beside lib */
        n = snprintf(ret, size, "%s/../lib/%s", file, FILE_NAME);
        if (n < 0 || (size_t)n >= size || access(ret, R_OK) < 0)
            n = snprintf(ret, size, "%s/%s", file, FILE_NAME);
    }
    if (n < 0 || (size_t)n >= size)
        return err_set(err, ENAMETOOLONG, "the path of %s is too long", FILE_NAME);
    if (access(ret, R_OK) < 0)
        return err_sys(err, errno,
                       "no kernels for GPUs: %s%s (make builds it where there is nvcc; HVD_KERNELS "
                       "names another file)",
                       ret, asked ? " of HVD_KERNELS" : "");
    return 0;
}

static int read_file(const char *path, char **ret, struct err *err)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode) || st.st_size == 0 || st.st_size > (off_t)FILE_MOST)
        return err_set(err, EINVAL, "%s is not a file of kernels", path);
    size_t size = (size_t)st.st_size, at = 0;
    auto_free char *data = malloc(size + 1);
    if (!data)
        return err_set(err, ENOMEM, "no memory for %s", path);
    while (at < size) {
        ssize_t n = read(fd, data + at, size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_sys(err, n < 0 ? errno : EIO, "%s", path);
        at += (size_t)n;
    }
    data[size] = '\0'; /* cuModuleLoadData() gets no size: this ends a file that is text (PTX) */
    *ret = TAKE(data);
    return 0;
}

/* ---- loading ---- */

static int explain(struct cuda_device *d, const char *path, int rc, struct err *err)
{
    int version = d->api->version;
    if (version < CUDA_KERNELS_VERSION && rc != -ENOMEM)
        return err_set(err, ENOTSUP,
                       "the driver of GPU %d (%s) is for CUDA %d.%d, the kernels in %s are of "
                       "CUDA %d.%d: install driver 580 or newer on the "
                       "host " DOCTOR(CHECK_DRIVER_VERSION),
                       d->ordinal, d->name, version / 1000, version / 10 % 100, path,
                       CUDA_KERNELS_VERSION / 1000, CUDA_KERNELS_VERSION / 10 % 100);
    return err_set(err, -rc, "the kernels in %s do not load on sm_%d: %s " DOCTOR(CHECK_GPU_ARCH),
                   path, d->sm, err_text(err));
}

static int load_module(struct cuda_device *d, struct cuda_kernels *k, const char *path,
                       struct err *err)
{
    auto_free char *image = NULL;
    int rc = read_file(path, &image, err);
    if (rc < 0)
        return rc;
    rc = cuda_check(d, d->api->module_load(&k->module, image), "cuModuleLoadData", err);
    if (rc < 0)
        return d->lost.code ? rc : explain(d, path, rc, err);
    for (int i = 0; i < GPU_KERNELS && rc == 0; i++)
        rc =
            cuda_check(d, d->api->module_function(&k->functions[i], k->module, gpu_kernel_names[i]),
                       gpu_kernel_names[i], err);
    if (rc == 0)
        return 0;
    d->api->module_unload(k->module);
    if (rc == -ENOENT)
        err_prefix(err, "%s is of another version of hvd", path);
    return rc;
}

int cuda_kernels_load(struct cuda_device *d, struct err *err)
{
    char path[PATH_MAX];
    if (d->kernels)
        return 0;
    int rc = cuda_kernels_path(path, sizeof(path), err);
    if (rc < 0)
        return rc;
    auto_free struct cuda_kernels *k = calloc(1, sizeof(*k));
    if (!k)
        return err_set(err, ENOMEM, "no memory for the kernels of GPU %d", d->ordinal);
    rc = load_module(d, k, path, err);
    if (rc == 0)
        d->kernels = TAKE(k);
    return rc;
}

void cuda_kernels_unload(struct cuda_device *d)
{
    if (d->kernels)
        d->api->module_unload(d->kernels->module);
}

/* ---- launches ---- */

static int launch(struct cuda_device *d, int kernel, unsigned blocks, void *parameters,
                  struct CUstream_st *stream, struct err *err)
{
    void *list[] = {parameters};
    unsigned code = d->api->launch(d->kernels->functions[kernel], blocks, 1, 1, KERNEL_THREADS, 1,
                                   1, 0, stream, list, NULL);
    return cuda_check(d, code, gpu_kernel_names[kernel], err);
}

int cuda_move(struct cuda_device *d, const struct gpu_change *change,
              const struct gpu_piece *pieces, size_t n, struct CUstream_st *stream, struct err *err)
{
    struct gpu_move move;
    int rc = cuda_kernels_load(d, err);
    if (rc == 0)
        rc = gpu_move_plan(change, &move, err);
    for (size_t at = 0; rc == 0 && at < n;) {
        struct kernel_move *m = &d->kernels->move;
        at += gpu_move_fill(&move, pieces + at, n - at, m);
        if (m->pieces > 0)
            rc = launch(d, move.kernel, gpu_blocks(m->chunks, d->multiprocessors), m, stream, err);
    }
    return rc;
}
