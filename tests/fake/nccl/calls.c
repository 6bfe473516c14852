/* SPDX-License-Identifier: Apache-2.0
 *
 * calls: the collectives of nccl.h: each becomes a task of a group. See fake.h.
 */
#include <string.h>

#include "tests/fake/nccl/fake.h"

#define N(name, result, arguments) EXPORT result name arguments;
NCCL_ABI_FUNCTIONS(N)
#undef N

static int call(const char *function, struct task t)
{
    if (t.comm)
        home_settle(t.comm);
    struct fault f = script_fault(function, t.comm);
    if (f.sync)
        return f.sync;
    t.fails = f.async;
    t.hangs = f.hangs;
    return group_add(&t);
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = ALL_REDUCE,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .op = op});
}

int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root,
               struct ncclComm *comm, struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = REDUCE,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .op = op,
                                        .peer = root});
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root,
                  struct ncclComm *comm, struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = BROADCAST,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .peer = root});
}

int ncclAllGather(const void *in, void *out, size_t count, int type, struct ncclComm *comm,
                  struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = ALL_GATHER,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type});
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op,
                      struct ncclComm *comm, struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = REDUCE_SCATTER,
                                        .in = in,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .op = op});
}

int ncclSend(const void *in, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = SEND,
                                        .in = in,
                                        .count = count,
                                        .type = type,
                                        .peer = peer});
}

int ncclRecv(void *out, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream)
{
    return call(__func__, (struct task){.comm = comm,
                                        .stream = stream,
                                        .kind = RECV,
                                        .out = out,
                                        .count = count,
                                        .type = type,
                                        .peer = peer});
}

int ncclRedOpCreatePreMulSum(int *op, void *scalar, int type, int residence, struct ncclComm *comm)
{
    struct fault f = script_fault(__func__, comm);
    if (f.sync)
        return f.sync;
    /* only scalars in host memory, of the tensor's type; hvd does not scale integers */
    if (residence != NCCL_ABI_SCALAR_HOST || type < NCCL_ABI_FLOAT16)
        return NCCL_ABI_INVALID_ARGUMENT;
    for (int i = 0; i < MADE_OPS_MAX; i++) {
        if (comm->made[i].used)
            continue;
        comm->made[i].used = true;
        comm->made[i].scalar = math_load(scalar, type);
        *op = NCCL_ABI_OPS + i;
        return NCCL_ABI_SUCCESS;
    }
    return NCCL_ABI_INTERNAL_ERROR;
}

int ncclRedOpDestroy(int op, struct ncclComm *comm)
{
    struct fault f = script_fault(__func__, comm);
    if (f.sync)
        return f.sync;
    if (op < NCCL_ABI_OPS || op >= NCCL_ABI_OPS + MADE_OPS_MAX ||
        !comm->made[op - NCCL_ABI_OPS].used)
        return NCCL_ABI_INVALID_ARGUMENT;
    comm->made[op - NCCL_ABI_OPS].used = false;
    return NCCL_ABI_SUCCESS;
}
