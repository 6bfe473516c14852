/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_steps: see nccl_steps.h.
 */
#include "core/backend/nccl_steps.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "core/backend/nccl_api.h"
#include "core/coll/half.h"
#include "core/coll/reduce.h"

/* NCCL's type, -1: it has none. */
static const int types[] = {
    [HVD_UINT8] = NCCL_ABI_UINT8,
    [HVD_INT8] = NCCL_ABI_INT8,
    [HVD_UINT16] = -1,
    [HVD_INT16] = -1,
    [HVD_INT32] = NCCL_ABI_INT32,
    [HVD_INT64] = NCCL_ABI_INT64,
    [HVD_FLOAT16] = NCCL_ABI_FLOAT16,
    [HVD_FLOAT32] = NCCL_ABI_FLOAT32,
    [HVD_FLOAT64] = NCCL_ABI_FLOAT64,
    [HVD_BOOL] = NCCL_ABI_UINT8,
    [HVD_BFLOAT16] = NCCL_ABI_BFLOAT16,
};
_Static_assert(sizeof(types) / sizeof(*types) == REDUCE_DTYPES, "one for each that it combines");

/* NCCL's operator, -1: it has none. For bool "or" is the maximum, "and" the minimum. */
static const struct {
    int of_numbers, of_bool;
} ops[HVD_OPS] = {
    [HVD_AVERAGE] = {NCCL_ABI_SUM, -1},
    [HVD_SUM] = {NCCL_ABI_SUM, NCCL_ABI_MAX},
    [HVD_ADASUM] = {-1, -1},
    [HVD_MIN] = {NCCL_ABI_MIN, NCCL_ABI_MIN},
    [HVD_MAX] = {NCCL_ABI_MAX, NCCL_ABI_MAX},
    [HVD_PRODUCT] = {NCCL_ABI_PROD, NCCL_ABI_MIN},
    [HVD_BAND] = {-1, NCCL_ABI_MIN},
    [HVD_BOR] = {-1, NCCL_ABI_MAX},
    [HVD_BXOR] = {-1, -1},
};

static bool reduces(enum hvd_kind kind)
{
    return kind == HVD_ALLREDUCE || kind == HVD_REDUCESCATTER;
}

/* The dtype of the buffers that NCCL sees. */
static enum hvd_dtype travels_as(const struct nccl_means *means, enum hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_INT16:
    case HVD_UINT16:
        return HVD_INT32;
    case HVD_BFLOAT16:
        return means->cuda == 0 || means->cuda >= 11000 ? HVD_BFLOAT16 : HVD_FLOAT32;
    default:
        return dtype;
    }
}

static bool has_factors(const struct nccl_form *f)
{
    return f->prescale != 1 || f->postscale != 1 || f->divisor > 1;
}

/* Leaves to NCCL the factors that it can apply; the kernels apply the others. */
static void give_factors(const struct coll_op *op, int size, struct nccl_form *f)
{
    bool linear = op->op == HVD_SUM || op->op == HVD_AVERAGE;
    if (!linear || !reduce_is_float(op->dtype) || f->dtype != op->dtype)
        return;
    if (f->prescale == 1 && f->postscale == 1 && f->divisor == size) {
        f->op = NCCL_ABI_AVG;
        f->divisor = 1;
    } else {
        f->factor = f->prescale * f->postscale / f->divisor;
        f->prescale = f->postscale = 1;
        f->divisor = 1;
    }
}

static int needs_kernels(const struct nccl_means *means, const struct coll_op *op,
                         const struct nccl_form *f, struct err *err)
{
    char version[16];
    if (means->kernels)
        return 0;
    if (f->dtype != op->dtype || f->to_bool)
        return err_set(err, ENOTSUP,
                       "NCCL %s cannot reduce %s, and hvd's kernels, which convert it, are not "
                       "loaded: set HVD_KERNELS to the file hvd_kernels.fatbin",
                       nccl_version_text(means->version, version), hvd_dtype_name(op->dtype));
    if (has_factors(f))
        return err_set(err, ENOTSUP,
                       "NCCL %s cannot apply the factors (prescale, postscale, average) to %s "
                       "(%s), and hvd's kernels, which can, are not loaded: set HVD_KERNELS to the "
                       "file hvd_kernels.fatbin",
                       nccl_version_text(means->version, version), hvd_dtype_name(op->dtype),
                       hvd_op_name(op->op));
    return 0;
}

int nccl_form_of(const struct nccl_means *means, const struct coll_op *op, int size,
                 struct nccl_form *ret, struct err *err)
{
    struct nccl_form f = {.dtype = op->dtype,
                          .type = NCCL_ABI_UINT8,
                          .op = NCCL_ABI_SUM,
                          .factor = 1,
                          .prescale = 1,
                          .postscale = 1,
                          .divisor = 1};
    if (op->kind == HVD_BARRIER)
        return err_set(err, ENOTSUP, "NCCL has no barrier");
    if (!reduces(op->kind)) {
        *ret = f;
        return 0;
    }
    if (op->dtype >= REDUCE_DTYPES)
        return err_set(err, ENOTSUP, "NCCL does not reduce %s", hvd_dtype_name(op->dtype));
    f.dtype = travels_as(means, op->dtype);
    f.type = types[f.dtype];
    f.to_bool = op->dtype == HVD_BOOL;
    f.op = f.to_bool ? ops[op->op].of_bool : ops[op->op].of_numbers;
    if (f.op < 0)
        return err_set(err, ENOTSUP, "NCCL has no %s of %s", hvd_op_name(op->op),
                       hvd_dtype_name(op->dtype));
    if (op->dtype != HVD_BOOL) { /* which is never scaled */
        f.prescale = op->prescale;
        f.postscale = op->postscale;
        f.divisor = op->op == HVD_AVERAGE ? op->contributors : 1;
    }
    if (has_factors(&f) && !means->kernels)
        give_factors(op, size, &f);
    int rc = needs_kernels(means, op, &f, err);
    if (rc == 0)
        *ret = f;
    return rc;
}

static bool is_power_of_two(double factor)
{
    int exponent;
    return frexp(factor, &exponent) == 0.5;
}

bool nccl_form_is_rough(const struct nccl_form *f, int size)
{
    if (f->dtype != HVD_FLOAT16 && f->dtype != HVD_BFLOAT16)
        return false;
    return !is_power_of_two(f->op == NCCL_ABI_AVG && f->type != NCCL_ABI_UINT8 ? size : f->factor);
}

/* ---- steps ---- */

static int add(struct nccl_steps *s, enum nccl_verb verb, int peer, const void *in, void *out,
               size_t count)
{
    if (count == 0)
        return 0;
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 16;
        struct nccl_step *grown = realloc(s->v, cap * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        s->v = grown;
        s->cap = cap;
    }
    s->v[s->n++] = (struct nccl_step){verb, peer, in, out, count};
    return 0;
}

static bool all_same(const size_t *counts, int size)
{
    for (int r = 1; r < size; r++) {
        if (counts[r] != counts[0])
            return false;
    }
    return true;
}

/* Arithmetic on a null pointer is undefined, even where there is nothing. */
static void *at(const void *p, size_t bytes)
{
    return bytes ? (uint8_t *)p + bytes : (void *)p;
}

static int allreduce(struct nccl_steps *s, const struct coll_op *op)
{
    int rc = 0;
    for (size_t i = 0; i < op->n && rc == 0; i++) {
        const struct coll_tensor *t = &op->tensors[i];
        rc = add(s, NCCL_ALLREDUCE, 0, t->in, t->out, t->count);
    }
    return rc;
}

/* The root's output may be another buffer than its input: NCCL fills it too. */
static int broadcast(struct nccl_steps *s, const struct coll_op *op, int rank)
{
    const struct coll_tensor *t = op->tensors;
    return add(s, NCCL_BROADCAST, op->root, rank == op->root ? t->in : t->out,
               t->out ? t->out : (void *)t->in, t->count * hvd_dtype_size(op->dtype));
}

static int allgather(struct nccl_steps *s, const struct coll_op *op, int rank, int size)
{
    const struct coll_tensor *t = op->tensors;
    size_t elem = hvd_dtype_size(op->dtype), offset = 0;
    int rc = 0;
    if (all_same(op->recv_counts, size))
        return add(s, NCCL_ALLGATHER, 0, t->in, t->out, op->recv_counts[0] * elem);
    for (int r = 0; r < size && rc == 0; r++) {
        void *out = at(t->out, offset);
        rc = add(s, NCCL_BROADCAST, r, r == rank ? t->in : out, out, op->recv_counts[r] * elem);
        offset += op->recv_counts[r] * elem;
    }
    return rc;
}

static int alltoall(struct nccl_steps *s, const struct coll_op *op, int rank, int size)
{
    const struct coll_tensor *t = op->tensors;
    size_t elem = hvd_dtype_size(op->dtype), from = 0, to = 0;
    int rc = 0;
    for (int r = 0; r < size && rc == 0; r++) {
        size_t sent = op->send_counts[r] * elem, received = op->recv_counts[r] * elem;
        void *in = at(t->in, from), *out = at(t->out, to);
        if (r == rank)
            rc = add(s, NCCL_COPY, r, in, out, received);
        else if ((rc = add(s, NCCL_SEND, r, in, NULL, sent)) == 0)
            rc = add(s, NCCL_RECV, r, NULL, out, received);
        from += sent;
        to += received;
    }
    return rc;
}

static int reducescatter(struct nccl_steps *s, const struct coll_op *op, int rank, int size)
{
    const struct coll_tensor *t = op->tensors;
    size_t elem = hvd_dtype_size(s->form.dtype), offset = 0;
    int rc = 0;
    if (all_same(op->recv_counts, size))
        return add(s, NCCL_REDUCESCATTER, 0, t->in, t->out, op->recv_counts[0]);
    for (int r = 0; r < size && rc == 0; r++) {
        rc = add(s, NCCL_REDUCE, r, at(t->in, offset), r == rank ? t->out : NULL,
                 op->recv_counts[r]);
        offset += op->recv_counts[r] * elem;
    }
    return rc;
}

static int fill(const struct coll_op *op, int rank, int size, struct nccl_steps *s)
{
    switch (op->kind) {
    case HVD_ALLREDUCE:
        return allreduce(s, op);
    case HVD_BROADCAST:
        return broadcast(s, op, rank);
    case HVD_ALLGATHER:
        return allgather(s, op, rank, size);
    case HVD_ALLTOALL:
        return alltoall(s, op, rank, size);
    case HVD_REDUCESCATTER:
        return reducescatter(s, op, rank, size);
    case HVD_BARRIER:
    case HVD_REDUCE:
    case HVD_GATHER:
    case HVD_SCATTER:
    case HVD_KINDS:
        break;
    }
    return -ENOTSUP;
}

int nccl_steps_make(const struct nccl_means *means, const struct coll_op *op, int rank, int size,
                    struct nccl_steps *ret, struct err *err)
{
    int rc = nccl_form_of(means, op, size, &ret->form, err);
    ret->n = 0;
    if (rc < 0)
        return rc;
    rc = fill(op, rank, size, ret);
    return rc < 0 ? err_set(err, -rc, "no memory for the calls of one %s", hvd_kind_name(op->kind))
                  : 0;
}

void nccl_steps_fini(struct nccl_steps *steps)
{
    free(steps->v);
    *steps = (struct nccl_steps){0};
}

/* ---- the calls ---- */

static const char *const names[NCCL_VERBS] = {
    [NCCL_ALLREDUCE] = "ncclAllReduce",
    [NCCL_REDUCE] = "ncclReduce",
    [NCCL_BROADCAST] = "ncclBroadcast",
    [NCCL_ALLGATHER] = "ncclAllGather",
    [NCCL_REDUCESCATTER] = "ncclReduceScatter",
    [NCCL_SEND] = "ncclSend",
    [NCCL_RECV] = "ncclRecv",
    [NCCL_COPY] = "a copy on the device",
};

static int call(const struct nccl_issue *i, const struct nccl_step *s, int op)
{
    const struct nccl_api *api = i->api;
    int type = i->steps->form.type;
    switch (s->verb) {
    case NCCL_ALLREDUCE:
        return api->ncclAllReduce(s->in, s->out, s->count, type, op, i->comm, i->stream);
    case NCCL_REDUCE:
        return api->ncclReduce(s->in, s->out, s->count, type, op, s->peer, i->comm, i->stream);
    case NCCL_BROADCAST:
        return api->ncclBroadcast(s->in, s->out, s->count, type, s->peer, i->comm, i->stream);
    case NCCL_ALLGATHER:
        return api->ncclAllGather(s->in, s->out, s->count, type, i->comm, i->stream);
    case NCCL_REDUCESCATTER:
        return api->ncclReduceScatter(s->in, s->out, s->count, type, op, i->comm, i->stream);
    case NCCL_SEND:
        return api->ncclSend(s->in, s->count, type, s->peer, i->comm, i->stream);
    case NCCL_RECV:
        return api->ncclRecv(s->out, s->count, type, s->peer, i->comm, i->stream);
    case NCCL_COPY:
        return i->host->copy(i->host->ctx, s->out, s->in, s->count, i->stream) == 0
                   ? NCCL_ABI_SUCCESS
                   : NCCL_ABI_CUDA_ERROR;
    case NCCL_VERBS:
        break;
    }
    return NCCL_ABI_INVALID_ARGUMENT;
}

/* Makes the copies, or all other calls. */
static int pass(const struct nccl_issue *i, bool copies, int op, const char **ret_call)
{
    int rc = NCCL_ABI_SUCCESS;
    for (size_t k = 0; k < i->steps->n && !nccl_failed(rc); k++) {
        const struct nccl_step *s = &i->steps->v[k];
        if ((s->verb == NCCL_COPY) == copies) {
            *ret_call = names[s->verb];
            rc = call(i, s, op);
        }
    }
    return rc;
}

/* An opened group is closed even after an error in it. */
static int group(const struct nccl_issue *i, int op, const char **ret_call)
{
    *ret_call = "ncclGroupStart";
    int rc = i->api->ncclGroupStart();
    if (nccl_failed(rc))
        return rc;
    rc = pass(i, false, op, ret_call);
    int end = i->api->ncclGroupEnd();
    if (nccl_failed(rc))
        return rc;
    *ret_call = "ncclGroupEnd";
    return end;
}

/* Converts the factor to the tensor's type, as NCCL requires. */
static int make_op(const struct nccl_issue *i, int *ret_op)
{
    int type = i->steps->form.type;
    double factor = i->steps->form.factor;
    float f = (float)factor;
    uint16_t half = type == NCCL_ABI_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
    void *scalar = type == NCCL_ABI_FLOAT64   ? (void *)&factor
                   : type == NCCL_ABI_FLOAT32 ? (void *)&f
                                              : (void *)&half;
    return i->api->ncclRedOpCreatePreMulSum(ret_op, scalar, type, NCCL_ABI_SCALAR_HOST, i->comm);
}

int nccl_issue(const struct nccl_issue *i, const char **ret_call)
{
    const struct nccl_steps *s = i->steps;
    int op = s->form.op, rc = pass(i, true, op, ret_call);
    bool made = s->form.factor != 1;
    if (nccl_failed(rc) || (s->n == 1 && s->v[0].verb == NCCL_COPY))
        return rc;
    if (made) {
        *ret_call = "ncclRedOpCreatePreMulSum";
        rc = make_op(i, &op);
        if (nccl_failed(rc))
            return rc;
    }
    rc = s->n == 1 ? pass(i, false, op, ret_call) : group(i, op, ret_call);
    /* The calls hold their own reference to the operator: it can be destroyed at once. */
    if (made)
        i->api->ncclRedOpDestroy(op, i->comm);
    return rc;
}
