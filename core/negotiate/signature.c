/* SPDX-License-Identifier: Apache-2.0
 *
 * signature: see signature.h.
 */
#include "core/negotiate/signature.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool same_double(double a, double b)
{
    /* compared as bits, so that a NaN equals itself
     * NOLINTNEXTLINE(bugprone-suspicious-memory-comparison) */
    return memcmp(&a, &b, sizeof(a)) == 0;
}

bool signature_equal(const struct signature *a, const struct signature *b)
{
    return a->kind == b->kind && a->asked == b->asked && a->dtype == b->dtype && a->op == b->op &&
           a->ndim == b->ndim && a->root == b->root && a->joined == b->joined &&
           a->by_host == b->by_host && a->device == b->device && a->world == b->world &&
           same_double(a->prescale, b->prescale) && same_double(a->postscale, b->postscale) &&
           a->group_size == b->group_size && a->group_index == b->group_index &&
           a->group_hash == b->group_hash &&
           memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

struct signature signature_common(const struct signature *sig)
{
    struct signature common = *sig;
    if (signature_has_dim0(sig))
        common.shape[0] = 0;
    return common;
}

enum hvd_kind signature_runs_as(enum hvd_kind asked)
{
    bool moves = asked == HVD_GATHER || asked == HVD_SCATTER;
    return moves ? HVD_ALLTOALL : asked == HVD_REDUCE ? HVD_ALLREDUCE : asked;
}

static bool is_kind(const struct signature *sig)
{
    return sig->kind < HVD_REDUCE && sig->asked < HVD_KINDS &&
           signature_runs_as(signature_asked(sig)) == sig->kind;
}

int signature_check(const struct signature *sig, struct err *err)
{
    if (!is_kind(sig))
        return err_set(err, EINVAL, "unknown kind %u, %u", sig->kind, sig->asked);
    if (sig->dtype >= HVD_DTYPES || sig->op >= HVD_OPS)
        return err_set(err, EINVAL, "unknown dtype %u or op %u", sig->dtype, sig->op);
    if (sig->ndim > HVD_MAX_DIMS)
        return err_set(err, EINVAL, "%u dimensions, at most %d", sig->ndim, HVD_MAX_DIMS);
    if (sig->by_host && (sig->kind != HVD_ALLREDUCE || sig->op != HVD_ADASUM))
        return err_set(err, EINVAL, "kind %u with op %u has no averages", sig->kind, sig->op);
    if (sig->root < 0)
        return err_set(err, EINVAL, "root %d", sig->root);
    if (sig->kind == HVD_ALLTOALL && (sig->ndim == 0 || sig->shape[0] != 0))
        return err_set(err, EINVAL, "an alltoall has a dimension 0, which the signature leaves 0");
    for (int i = 0; i < sig->ndim; i++)
        if (sig->shape[i] < 0)
            return err_set(err, EINVAL, "dimension %d is negative", i);
    if (sig->group_size > HVD_MAX_GROUP || (sig->group_size && sig->group_index >= sig->group_size))
        return err_set(err, EINVAL, "member %u of a group of %u", sig->group_index,
                       sig->group_size);
    return 0;
}

uint64_t signature_bytes(const struct signature *sig)
{
    uint64_t bytes = hvd_dtype_size((enum hvd_dtype)sig->dtype);
    for (int i = 0; i < sig->ndim; i++)
        if (__builtin_mul_overflow(bytes, (uint64_t)sig->shape[i], &bytes))
            return UINT64_MAX / 2;
    return bytes > UINT64_MAX / 2 ? UINT64_MAX / 2 : bytes;
}

bool signature_fusable(const struct signature *a, const struct signature *b)
{
    return a->kind == HVD_ALLREDUCE && b->kind == HVD_ALLREDUCE && a->dtype == b->dtype &&
           a->op == b->op && a->op != HVD_ADASUM && a->device == b->device &&
           same_double(a->prescale, b->prescale) && same_double(a->postscale, b->postscale);
}

void signature_write(const struct signature *sig, struct buf *b)
{
    buf_put_u8(b, sig->kind);
    buf_put_u8(b, sig->dtype);
    buf_put_u8(b, sig->op);
    buf_put_u8(b, sig->ndim);
    buf_put_u32(b, (uint32_t)sig->root);
    buf_put_u32(b, (uint32_t)sig->device);
    buf_put_u32(b, sig->world);
    buf_put_u8(b, (uint8_t)(sig->asked << 2 | sig->by_host << 1 | sig->joined));
    buf_put_f64(b, sig->prescale);
    buf_put_f64(b, sig->postscale);
    buf_put_u32(b, sig->group_size);
    buf_put_u32(b, sig->group_index);
    buf_put_u64(b, sig->group_hash);
    for (int i = 0; i < sig->ndim; i++)
        buf_put_u64(b, (uint64_t)sig->shape[i]);
}

void signature_read(struct signature *sig, struct reader *r)
{
    memset(sig, 0, sizeof(*sig));
    sig->kind = reader_u8(r);
    sig->dtype = reader_u8(r);
    sig->op = reader_u8(r);
    sig->ndim = reader_u8(r);
    sig->root = (int32_t)reader_u32(r);
    sig->device = (int32_t)reader_u32(r);
    sig->world = reader_u32(r);
    uint8_t asked = reader_u8(r);
    sig->joined = asked & 1;
    sig->by_host = asked >> 1 & 1;
    sig->asked = asked >> 2;
    sig->prescale = reader_f64(r);
    sig->postscale = reader_f64(r);
    sig->group_size = reader_u32(r);
    sig->group_index = reader_u32(r);
    sig->group_hash = reader_u64(r);
    for (int i = 0; i < sig->ndim && i < HVD_MAX_DIMS; i++)
        sig->shape[i] = (int64_t)reader_u64(r);
    if (r->failed || signature_check(sig, NULL) < 0) {
        r->failed = true;
        memset(sig, 0, sizeof(*sig));
    }
}

struct line {
    char *text;
    size_t size, len;
};

__attribute__((format(printf, 2, 3))) static void line_add(struct line *l, const char *fmt, ...)
{
    if (l->len >= l->size)
        return;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->len, l->size - l->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        l->len += (size_t)n;
}

void signature_text(const struct signature *sig, char *text, size_t size)
{
    struct line l = {.text = text, .size = size};
    if (size)
        text[0] = '\0';
    if (sig->kind == HVD_BARRIER) {
        line_add(&l, "barrier");
        return;
    }
    line_add(&l, "%s [", hvd_dtype_name((enum hvd_dtype)sig->dtype));
    for (int i = 0; i < sig->ndim; i++) {
        if (i == 0 && (signature_has_dim0(sig) || sig->kind == HVD_ALLTOALL))
            line_add(&l, "*");
        else
            line_add(&l, "%s%lld", i ? "," : "", (long long)sig->shape[i]);
    }
    line_add(&l, "]");
    if (sig->kind == HVD_ALLREDUCE || sig->kind == HVD_REDUCESCATTER)
        line_add(&l, " %s%s", hvd_op_name((enum hvd_op)sig->op),
                 sig->by_host ? " of hosts' averages" : "");
    if (sig->kind == HVD_BROADCAST || sig->asked)
        line_add(&l, " root %d", sig->root);
    if (!same_double(sig->prescale, 1.0) || !same_double(sig->postscale, 1.0))
        line_add(&l, " scaled %g %g", sig->prescale, sig->postscale);
    if (sig->device >= 0)
        line_add(&l, " on a GPU");
    if (sig->group_size)
        line_add(&l, " member %u of a group of %u", sig->group_index, sig->group_size);
}
