/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_issue: see nccl_issue.h.
 */
#include "core/backend/nccl_issue.h"

#include <string.h>

#include "core/coll/half.h"

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
    int type = i->form->type;
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

static int copies(const struct nccl_issue *i, const char **ret_call)
{
    for (size_t k = 0; k < i->n; k++) {
        int rc = i->steps[k].verb == NCCL_COPY ? call(i, &i->steps[k], 0) : NCCL_ABI_SUCCESS;
        if (nccl_failed(rc)) {
            *ret_call = names[NCCL_COPY];
            return rc;
        }
    }
    return NCCL_ABI_SUCCESS;
}

/* An opened group is closed even after an error in it. */
static int group(const struct nccl_issue *i, int op, const char **ret_call)
{
    int rc = i->api->ncclGroupStart();
    *ret_call = "ncclGroupStart";
    if (nccl_failed(rc))
        return rc;
    for (size_t k = 0; k < i->n && !nccl_failed(rc); k++) {
        if (i->steps[k].verb == NCCL_COPY)
            continue;
        *ret_call = names[i->steps[k].verb];
        rc = call(i, &i->steps[k], op);
    }
    int end = i->api->ncclGroupEnd();
    if (nccl_failed(rc))
        return rc;
    *ret_call = "ncclGroupEnd";
    return end;
}

/* Converts the factor to the tensor's type, as NCCL requires. */
static int make_op(const struct nccl_issue *i, int *ret_op)
{
    double factor = i->form->factor;
    float f = (float)factor;
    uint16_t half = i->form->type == NCCL_ABI_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
    void *scalar = i->form->type == NCCL_ABI_FLOAT64   ? (void *)&factor
                   : i->form->type == NCCL_ABI_FLOAT32 ? (void *)&f
                                                       : (void *)&half;
    return i->api->ncclRedOpCreatePreMulSum(ret_op, scalar, i->form->type, NCCL_ABI_SCALAR_HOST,
                                            i->comm);
}

int nccl_issue(const struct nccl_issue *i, const char **ret_call)
{
    int op = i->form->op, rc = copies(i, ret_call);
    bool made = i->form->factor != 1;
    if (nccl_failed(rc))
        return rc;
    if (i->n == 1 && i->steps[0].verb == NCCL_COPY)
        return rc;
    if (made) {
        *ret_call = "ncclRedOpCreatePreMulSum";
        rc = make_op(i, &op);
        if (nccl_failed(rc))
            return rc;
    }
    if (i->n == 1) {
        *ret_call = names[i->steps[0].verb];
        rc = call(i, &i->steps[0], op);
    } else {
        rc = group(i, op, ret_call);
    }
    /* The calls hold their own reference to the operator: it can be destroyed at once. */
    if (made)
        i->api->ncclRedOpDestroy(op, i->comm);
    return rc;
}
