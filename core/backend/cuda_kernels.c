/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels: see cuda_kernels.h.
 */
#include "core/backend/cuda_kernels.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/backend/doctor.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/fd.h"
#include "core/base/library.h"
#include "core/coll/reduce.h"

#define FILE_NAME "hvd_kernels.fatbin"
#define FILE_MOST ((size_t)64 << 20)
#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
/* blocks of KERNEL_THREADS that a multiprocessor runs at the same time */
#define BLOCKS_A_PLACE 8

struct cuda_kernels {
    struct CUmod_st *module;
    struct CUfunc_st *functions[GPU_KERNELS];
    struct kernel_move move; /* parameters of the launch that is being prepared */
};

/* ---- preparation ---- */

_Static_assert(sizeof(struct kernel_move) == 48 + 28 * KERNEL_PIECES, "as the device sees it");

const char *const gpu_kernel_names[GPU_KERNELS] = {
    "hvd_move_bytes",
    "hvd_move_uint8",
    "hvd_move_int8",
    "hvd_move_uint16",
    "hvd_move_int16",
    "hvd_move_int32",
    "hvd_move_int64",
    "hvd_move_float16",
    "hvd_move_float32",
    "hvd_move_float64",
    "hvd_move_bool",
    "hvd_move_bfloat16",
    "hvd_move_float32_float16",
    "hvd_move_float16_float32",
    "hvd_move_float32_bfloat16",
    "hvd_move_bfloat16_float32",
    "hvd_move_int16_int32",
    "hvd_move_int32_int16",
    "hvd_move_uint16_int32",
    "hvd_move_int32_uint16",
};

/* Indices into the table above. */
enum { MOVE_BYTES, MOVE_SAME, MOVE_CONVERT = MOVE_SAME + REDUCE_DTYPES };

static const struct {
    enum hvd_dtype from, to;
} conversions[] = {
    {HVD_FLOAT32, HVD_FLOAT16},  {HVD_FLOAT16, HVD_FLOAT32}, {HVD_FLOAT32, HVD_BFLOAT16},
    {HVD_BFLOAT16, HVD_FLOAT32}, {HVD_INT16, HVD_INT32},     {HVD_INT32, HVD_INT16},
    {HVD_UINT16, HVD_INT32},     {HVD_INT32, HVD_UINT16},
};

/* A division by a power of two becomes the product with its inverse. It has the same bits and is
 * faster: on an H200 the division lowers unpacking from 91 % to 71 % of a copy's speed. */
static struct kernel_change change_of(const struct gpu_change *c)
{
    bool inverse = c->postscale == 1.0 && (c->divisor & (c->divisor - 1)) == 0 &&
                   reduce_is_float(c->from) && reduce_is_float(c->to);
    double postscale = inverse ? 1.0 / c->divisor : c->postscale;
    int divisor = inverse ? 1 : c->divisor;
    return (struct kernel_change){
        .prescale = c->prescale,
        .postscale = postscale,
        .divisor = divisor,
        .flags = (c->prescale != 1.0 ? KERNEL_PRESCALE : 0) | (divisor > 1 ? KERNEL_DIVIDE : 0) |
                 (postscale != 1.0 ? KERNEL_POSTSCALE : 0),
    };
}

_Static_assert(MOVE_CONVERT + COUNT(conversions) == GPU_KERNELS, "a name for each");

/* Returns the number of the kernel for this conversion; -1: there is none. */
static int conversion(enum hvd_dtype from, enum hvd_dtype to)
{
    for (size_t i = 0; i < COUNT(conversions); i++)
        if (conversions[i].from == from && conversions[i].to == to)
            return MOVE_CONVERT + (int)i;
    return -1;
}

int gpu_move_plan(const struct gpu_change *change, struct gpu_move *ret, struct err *err)
{
    struct gpu_move move = {
        .change = change_of(change),
        .from_bytes = hvd_dtype_size(change->from),
        .to_bytes = hvd_dtype_size(change->to),
        .unit = 1,
    };
    bool is_bool = change->from == HVD_BOOL;
    if (is_bool)
        move.change.flags = 0;
    if (change->from == change->to) {
        move.kernel = MOVE_SAME + (int)change->from;
        if (!is_bool && !move.change.flags) {
            move.kernel = MOVE_BYTES;
            move.unit = move.from_bytes;
            move.from_bytes = move.to_bytes = 1;
        }
    } else {
        move.kernel = conversion(change->from, change->to);
        if (move.kernel < 0)
            return err_set(err, ENOTSUP, "no kernel makes %s of %s", hvd_dtype_name(change->to),
                           hvd_dtype_name(change->from));
    }
    *ret = move;
    return 0;
}

size_t gpu_move_fill(const struct gpu_move *move, const struct gpu_piece *pieces, size_t n,
                     struct kernel_move *ret)
{
    size_t larger = move->from_bytes > move->to_bytes ? move->from_bytes : move->to_bytes, i;
    uint32_t chunk = (uint32_t)(KERNEL_CHUNK / larger);
    uint32_t used = 0, chunks = 0;
    for (i = 0; i < n && used < KERNEL_PIECES; i++) {
        uint64_t count = (uint64_t)pieces[i].count * move->unit;
        if (count == 0)
            continue;
        ret->from[used] = pieces[i].from;
        ret->to[used] = pieces[i].to;
        ret->count[used] = count;
        ret->first[used] = chunks;
        chunks += (uint32_t)((count + chunk - 1) / chunk);
        used++;
    }
    ret->change = move->change;
    ret->pieces = used;
    ret->chunks = chunks;
    ret->chunk = chunk;
    return i;
}

unsigned gpu_blocks(uint64_t work, int multiprocessors)
{
    uint64_t most = (uint64_t)multiprocessors * BLOCKS_A_PLACE;
    return (unsigned)(work < most ? work : most);
}

/* ---- the file ---- */

int cuda_kernels_path(char *ret, size_t size, struct err *err)
{
    const char *asked = env_get("KERNELS");
    int rc = 0;
    if (!asked)
        rc = library_beside(FILE_NAME, ret, size);
    else if ((size_t)snprintf(ret, size, "%s", asked) >= size)
        rc = -ENAMETOOLONG;
    if (rc == -ENAMETOOLONG)
        return err_set(err, ENAMETOOLONG, "the path of %s is too long", FILE_NAME);
    if (rc < 0)
        return err_set(err, -rc, "libhvd.so does not know its own folder: set HVD_KERNELS");
    if (access(ret, R_OK) < 0)
        return err_sys(err, errno,
                       "no kernels for GPUs: %s%s (make builds it where there is nvcc; HVD_KERNELS "
                       "names another file)",
                       ret, asked ? " of HVD_KERNELS" : "");
    return 0;
}

/* Ends with a zero byte, because cuModuleLoadData() gets no size: this ends a file that is text
 * (PTX). */
static int read_file(const char *path, char **ret, struct err *err)
{
    size_t size = 0;
    int rc = fd_read_file(path, FILE_MOST, ret, &size);
    if (rc == -EISDIR || rc == -EFBIG || (rc == 0 && size == 0))
        return err_set(err, EINVAL, "%s is not a file of kernels", path);
    return rc < 0 ? err_sys(err, -rc, "%s", path) : 0;
}

/* ---- its content ---- */

#define MAGIC 0xba55ed50u
enum { PTX = 1, CODE = 2 };

struct head {
    uint32_t magic;
    uint16_t version, head_size;
    uint64_t size; /* bytes of all parts */
};

struct part {
    uint16_t kind, unknown;
    uint32_t head_size;
    uint64_t size; /* bytes of the part, without its head */
    uint32_t packed_size, unknown2;
    uint16_t minor, major;
    uint32_t sm;
};

/* Finds where the parts begin and end. -EINVAL: not a file of kernels, or it is cut off. */
static int find_parts(const uint8_t *bytes, size_t n, size_t *ret_begin, size_t *ret_end,
                      struct err *err)
{
    struct head head;
    if (n < sizeof(head))
        return err_set(err, EINVAL, "%zu bytes are too short for a file of kernels", n);
    memcpy(&head, bytes, sizeof(head));
    if (head.magic != MAGIC || head.head_size < sizeof(head) || head.head_size > n)
        return err_set(err, EINVAL, "not a file of kernels: it begins with 0x%08x", head.magic);
    if (head.size > n - head.head_size)
        return err_set(err, EINVAL, "%zu bytes of kernels, the file says %llu", n - head.head_size,
                       (unsigned long long)head.size);
    *ret_begin = head.head_size;
    *ret_end = head.head_size + head.size;
    return 0;
}

int cuda_fatbin_next(const void *bytes, size_t n, size_t *at, struct cuda_fatbin_part *ret,
                     struct err *err)
{
    size_t begin = 0, end = 0;
    struct part part;
    int rc = find_parts(bytes, n, &begin, &end, err);
    if (rc < 0)
        return rc;
    if (*at < begin)
        *at = begin;
    for (; *at < end; *at = ret->at + ret->n) {
        if (end - *at < sizeof(part))
            return err_set(err, EINVAL, "the file of kernels ends inside of a part");
        memcpy(&part, (const uint8_t *)bytes + *at, sizeof(part));
        if (part.head_size < sizeof(part) || part.head_size > end - *at ||
            part.size > end - *at - part.head_size)
            return err_set(err, EINVAL, "a part of the file of kernels does not fit into it");
        *ret = (struct cuda_fatbin_part){part.kind == PTX, part.sm, *at + part.head_size,
                                         (size_t)part.size};
        if (part.kind != PTX && part.kind != CODE)
            continue;
        *at = ret->at + ret->n;
        return 1;
    }
    return 0;
}

static void add(char *dst, size_t size, const char *word, unsigned sm)
{
    size_t n = strlen(dst);
    snprintf(dst + n, size - n, "%s%s%u", n ? (*word == 'P' ? ", " : " ") : "", word, sm);
}

int cuda_fatbin_text(const void *bytes, size_t n, char *dst, size_t size, struct err *err)
{
    struct cuda_fatbin_part part;
    char text[512] = "";
    for (int ptx = 0; ptx < 2; ptx++) {
        int rc;
        for (size_t at = 0; (rc = cuda_fatbin_next(bytes, n, &at, &part, err)) > 0;)
            if (part.ptx == ptx)
                add(text, sizeof(text), ptx ? "PTX of sm_" : "sm_", part.sm);
        if (rc < 0)
            return rc;
    }
    snprintf(dst, size, "%s", text);
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
