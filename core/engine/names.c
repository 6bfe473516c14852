/* SPDX-License-Identifier: Apache-2.0
 *
 * names: names and sizes of dtypes, ops and kinds (hvd.h). Any thread, no state.
 */
#include <hvd.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [HVD_UINT8] = {"uint8", 1},
    [HVD_INT8] = {"int8", 1},
    [HVD_UINT16] = {"uint16", 2},
    [HVD_INT16] = {"int16", 2},
    [HVD_INT32] = {"int32", 4},
    [HVD_INT64] = {"int64", 8},
    [HVD_FLOAT16] = {"float16", 2},
    [HVD_FLOAT32] = {"float32", 4},
    [HVD_FLOAT64] = {"float64", 8},
    [HVD_BOOL] = {"bool", 1},
    [HVD_BFLOAT16] = {"bfloat16", 2},
    [HVD_FLOAT8_E4M3FN] = {"float8_e4m3fn", 1},
    [HVD_FLOAT8_E5M2] = {"float8_e5m2", 1},
};
_Static_assert(COUNT(dtypes) == HVD_DTYPES, "a name and a size for each");

static const char *const ops[HVD_OPS] = {
    [HVD_AVERAGE] = "average", [HVD_SUM] = "sum", [HVD_ADASUM] = "adasum",
    [HVD_MIN] = "min",         [HVD_MAX] = "max", [HVD_PRODUCT] = "product",
    [HVD_BAND] = "band",       [HVD_BOR] = "bor", [HVD_BXOR] = "bxor",
};

static const char *const kinds[HVD_KINDS] = {
    [HVD_ALLREDUCE] = "allreduce",
    [HVD_ALLGATHER] = "allgather",
    [HVD_BROADCAST] = "broadcast",
    [HVD_ALLTOALL] = "alltoall",
    [HVD_REDUCE] = "reduce",
    [HVD_GATHER] = "gather",
    [HVD_SCATTER] = "scatter",
    [HVD_BARRIER] = "barrier",
    [HVD_REDUCESCATTER] = "reducescatter",
};

size_t hvd_dtype_size(enum hvd_dtype dtype)
{
    return (size_t)dtype < COUNT(dtypes) ? dtypes[dtype].size : 0;
}

const char *hvd_dtype_name(enum hvd_dtype dtype)
{
    return (size_t)dtype < COUNT(dtypes) ? dtypes[dtype].name : "unknown dtype";
}

const char *hvd_op_name(enum hvd_op op)
{
    return (size_t)op < COUNT(ops) ? ops[op] : "unknown op";
}

const char *hvd_kind_name(enum hvd_kind kind)
{
    return (size_t)kind < COUNT(kinds) ? kinds[kind] : "unknown kind";
}

const char *hvd_version(void)
{
    return HVD_VERSION;
}
