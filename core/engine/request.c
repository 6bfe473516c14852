/* SPDX-License-Identifier: Apache-2.0
 *
 * request: see request.h.
 */
#include "core/engine/request.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/coll/reduce.h"
#include "core/negotiate/signature.h"

int64_t request_rows(int64_t rows, int rank, int size)
{
    return rows / size + (rank < rows % size ? 1 : 0);
}

static bool is_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

int request_copy(const void *from, size_t stride, size_t known, size_t n, struct hvd_request **ret,
                 struct err *err)
{
    const size_t own = sizeof(struct hvd_request), common = known < own ? known : own;
    auto_free struct hvd_request *copy = calloc(n, own);
    if (!copy)
        return err_set(err, ENOMEM, "no memory for %zu requests", n);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = (const uint8_t *)from + i * stride;
        if (!is_zero(at + common, known - common))
            return err_set(err, EINVAL,
                           "a request of %zu bytes uses what this version of hvd does not have",
                           known);
        memcpy(&copy[i], at, common);
    }
    *ret = TAKE(copy);
    return 0;
}

static int check_shape(const struct hvd_request *r, const char *name, struct request_facts *f,
                       struct err *err)
{
    if (r->ndim < 0 || r->ndim > HVD_MAX_DIMS)
        return err_set(err, EINVAL, "%s: %d dimensions, 0 to %d are possible", name, r->ndim,
                       HVD_MAX_DIMS);
    if (r->ndim > 0 && !r->shape)
        return err_set(err, EINVAL, "%s: no shape", name);
    bool rows = r->kind != HVD_ALLREDUCE && r->kind != HVD_REDUCE && r->kind != HVD_BROADCAST;
    if (rows && r->ndim == 0)
        return err_set(err, EINVAL, "%s: %s needs at least one dimension", name,
                       hvd_kind_name(r->kind));
    size_t element = hvd_dtype_size(r->dtype);
    size_t inner = 1, bytes = 0;
    for (int i = 0; i < r->ndim; i++) {
        if (r->shape[i] < 0)
            return err_set(err, EINVAL, "%s: dimension %d is %" PRId64, name, i, r->shape[i]);
        f->sig.shape[i] = r->shape[i];
        if (i > 0 && __builtin_mul_overflow(inner, (size_t)r->shape[i], &inner))
            return err_set(err, EINVAL, "%s: the shape is too large", name);
    }
    size_t rows0 = r->ndim > 0 ? (size_t)r->shape[0] : 1;
    if (__builtin_mul_overflow(inner, rows0, &f->count) ||
        __builtin_mul_overflow(f->count, element, &bytes) || bytes > (size_t)INT64_MAX / 2)
        return err_set(err, EINVAL, "%s: the shape is too large", name);
    f->inner = inner;
    f->sig.ndim = (uint8_t)r->ndim;
    return 0;
}

static int check_scale(double scale, const char *what, const char *name, double *ret,
                       struct err *err)
{
    if (!isfinite(scale))
        return err_set(err, EINVAL, "%s: %s is not a finite number", name, what);
    *ret = scale == 0 ? 1.0 : scale; /* NOLINT(clang-analyzer-core.UndefinedBinaryOperatorResult) */
    return 0;
}

static int check_reduction(const struct hvd_request *r, const char *name, struct request_facts *f,
                           struct err *err)
{
    if ((unsigned)r->op >= HVD_OPS)
        return err_set(err, EINVAL, "%s: unknown op %d", name, (int)r->op);
    if (r->dtype >= REDUCE_DTYPES)
        return err_set(
            err, EINVAL,
            "%s: %s cannot combine elements of %s, which are only moved (broadcast, "
            "allgather, alltoall, gather, scatter): convert the tensor to bfloat16 first",
            name, hvd_kind_name(r->kind), hvd_dtype_name(r->dtype));
    if (r->op == HVD_ADASUM && r->kind != HVD_ALLREDUCE && r->kind != HVD_REDUCE)
        return err_set(err, ENOTSUP, "%s: adasum is possible in an allreduce and a reduce only",
                       name);
    bool possible =
        r->op == HVD_ADASUM ? reduce_is_float(r->dtype) : reduce_possible(r->dtype, r->op);
    if (!possible)
        return err_set(err, EINVAL, "%s: there is no %s of %s", name, hvd_op_name(r->op),
                       hvd_dtype_name(r->dtype));
    f->sig.op = (uint8_t)r->op;
    int rc = check_scale(r->prescale, "prescale", name, &f->sig.prescale, err);
    if (rc == 0)
        rc = check_scale(r->postscale, "postscale", name, &f->sig.postscale, err);
    if (rc == 0 && !reduce_scales(r->dtype, r->op) &&
        (f->sig.prescale != 1.0 || f->sig.postscale != 1.0))
        rc = err_set(err, EINVAL, "%s: %s of %s cannot be scaled", name, hvd_op_name(r->op),
                     hvd_dtype_name(r->dtype));
    return rc;
}

static int check_root(const struct hvd_request *r, const char *name, int size,
                      struct request_facts *f, struct err *err)
{
    if (r->root < 0 || r->root >= size)
        return err_set(err, EINVAL, "%s: root %d is no rank of %d", name, r->root, size);
    f->sig.root = r->root;
    return 0;
}

static int check_splits(const struct hvd_request *r, const char *name, int size, struct err *err)
{
    if (!r->splits) {
        if (r->shape[0] % size != 0)
            return err_set(err, EINVAL,
                           "%s: %" PRId64 " rows cannot be shared out equally to %d ranks; give "
                           "splits",
                           name, r->shape[0], size);
        return 0;
    }
    int64_t sum = 0;
    for (int i = 0; i < size; i++) {
        if (r->splits[i] < 0 || r->splits[i] > r->shape[0] - sum)
            return err_set(err, EINVAL,
                           "%s: splits do not add up to the %" PRId64 " rows there are", name,
                           r->shape[0]);
        sum += r->splits[i];
    }
    if (sum != r->shape[0])
        return err_set(err, EINVAL,
                       "%s: splits add up to %" PRId64 ", but there are %" PRId64 " rows", name,
                       sum, r->shape[0]);
    return 0;
}

/* Checks the output buffer of an operation whose result has a length that depends on other ranks.
 */
static int check_room(const struct hvd_request *r, const char *name, struct request_facts *f,
                      struct err *err)
{
    size_t bytes;
    if (!r->output)
        return 0;
    if (r->output_rows < 0 ||
        __builtin_mul_overflow((size_t)r->output_rows, f->inner, &f->out_count) ||
        __builtin_mul_overflow(f->out_count, hvd_dtype_size(r->dtype), &bytes) ||
        bytes > (size_t)INT64_MAX / 2)
        return err_set(err, EINVAL, "%s: output_rows is %" PRId64, name, r->output_rows);
    if (r->output == r->input && f->count > 0)
        return err_set(err, EINVAL, "%s: %s cannot be done in place", name, hvd_kind_name(r->kind));
    return 0;
}

static int check_memory(const struct hvd_request *r, const char *name,
                        const struct request_facts *f, bool reads_input, struct err *err)
{
    size_t element = hvd_dtype_size(r->dtype);
    size_t in_bytes = f->count * element, out_bytes = f->out_count * element;
    if (reads_input && in_bytes > 0 && !r->input)
        return err_set(err, EINVAL, "%s: no input", name);
    if (out_bytes > 0 && !r->output)
        return err_set(err, EINVAL, "%s: no output", name);
    uintptr_t in = (uintptr_t)r->input, out = (uintptr_t)r->output;
    if (reads_input && in != out && in_bytes > 0 && out_bytes > 0 && in < out + out_bytes &&
        out < in + in_bytes)
        return err_set(err, EINVAL, "%s: input and output overlap", name);
    return 0;
}

static bool has_root(enum hvd_kind kind)
{
    return kind == HVD_BROADCAST || kind == HVD_REDUCE || kind == HVD_GATHER || kind == HVD_SCATTER;
}

static int check_kind(const struct hvd_request *r, const char *name, int rank, int size,
                      struct request_facts *f, struct err *err)
{
    bool reads_input = true;
    int rc = 0;
    f->sig.prescale = f->sig.postscale = 1.0;
    if (has_root(r->kind) && check_root(r, name, size, f, err) < 0)
        return err->code;
    switch (r->kind) {
    case HVD_ALLREDUCE:
    case HVD_REDUCE:
        f->out_count = f->count;
        rc = check_reduction(r, name, f, err);
        break;
    case HVD_REDUCESCATTER:
        f->out_count = (size_t)request_rows(r->shape[0], rank, size) * f->inner;
        rc = check_reduction(r, name, f, err);
        break;
    case HVD_BROADCAST:
        f->out_count = f->count;
        reads_input = r->root == rank;
        break;
    case HVD_ALLTOALL:
        rc = check_splits(r, name, size, err);
        rc = rc < 0 ? rc : check_room(r, name, f, err);
        break;
    case HVD_SCATTER:
        if (r->root == rank)
            rc = check_splits(r, name, size, err);
        else
            f->count = 0;
        rc = rc < 0 ? rc : check_room(r, name, f, err);
        break;
    case HVD_GATHER:
    case HVD_ALLGATHER:
        rc = check_room(r, name, f, err);
        break;
    case HVD_BARRIER:
    case HVD_KINDS:
        break;
    }
    return rc < 0 ? rc : check_memory(r, name, f, reads_input, err);
}

int request_check(const struct hvd_request *r, const char *name, int rank, int size,
                  struct request_facts *ret, struct err *err)
{
    struct request_facts f;
    memset(&f, 0, sizeof(f)); /* zeroes unused dimensions and the padding, too */
    if ((unsigned)r->kind >= HVD_KINDS)
        return err_set(err, EINVAL, "%s: unknown kind of operation %d", name, (int)r->kind);
    f.sig.kind = (uint8_t)signature_runs_as(r->kind);
    f.sig.asked = f.sig.kind == (uint8_t)r->kind ? 0 : (uint8_t)r->kind;
    f.sig.device = -1;
    if (r->kind == HVD_BARRIER) {
        f.sig.prescale = f.sig.postscale = 1.0;
        memcpy(ret, &f, sizeof(f));
        return 0;
    }
    if ((unsigned)r->dtype >= HVD_DTYPES)
        return err_set(err, EINVAL, "%s: unknown dtype %d", name, (int)r->dtype);
    if (r->device < -1)
        return err_set(err, EINVAL, "%s: device %d: want -1, the host's memory, or a GPU's number",
                       name, r->device);
    f.sig.device = r->device < 0 ? -1 : 0;
    f.sig.dtype = (uint8_t)r->dtype;
    int rc = check_shape(r, name, &f, err);
    if (rc == 0)
        rc = check_kind(r, name, rank, size, &f, err);
    if (f.sig.kind == HVD_ALLTOALL)
        f.sig.shape[0] = 0; /* each rank has its own: see signature_has_dim0() */
    if (rc == 0)
        memcpy(ret, &f, sizeof(f));
    return rc;
}
