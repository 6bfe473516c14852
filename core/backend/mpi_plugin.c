/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: see mpi_plugin.h. The source of libhvd_mpi.so, not of libhvd.so: compiled with the
 * site's mpicc, where there is one.
 */
#include "core/backend/mpi_plugin.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "core/backend/mpi_version.h"

#define TAG 1

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)
#if defined(OPEN_MPI)
#define FAMILY MPI_FAMILY_OPEN
#define MAJOR  OMPI_MAJOR_VERSION
#define BUILT_FOR                                                                                  \
    "Open MPI " VALUE(OMPI_MAJOR_VERSION) "." VALUE(OMPI_MINOR_VERSION) "." VALUE(                 \
        OMPI_RELEASE_VERSION)
#elif defined(MPICH_NAME) || defined(MPICH_VERSION)
#define FAMILY MPI_FAMILY_MPICH
#define MAJOR  0
#if defined(I_MPI_VERSION)
#define BUILT_FOR "Intel MPI " I_MPI_VERSION
#elif defined(CRAY_MPICH_VERSION)
#define BUILT_FOR "Cray MPICH " VALUE(CRAY_MPICH_VERSION)
#elif defined(MVAPICH2_VERSION)
#define BUILT_FOR "MVAPICH2 " MVAPICH2_VERSION
#elif defined(MVAPICH_VERSION)
#define BUILT_FOR "MVAPICH " MVAPICH_VERSION
#else
#define BUILT_FOR "MPICH " MPICH_VERSION
#endif
#else
#define FAMILY    MPI_FAMILY_OTHER
#define MAJOR     0
#define BUILT_FOR "an MPI " VALUE(MPI_VERSION) "." VALUE(MPI_SUBVERSION)
#endif

_Static_assert(sizeof(MPI_Request) <= sizeof(struct mpi_request), "room for an MPI_Request");

static struct {
    mpi_reduce_f reduce;
    MPI_Op own[HVD_OPS], ordered[HVD_OPS];
    char why[MPI_MAX_ERROR_STRING + 64];
} g;

static int failed(const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len = 0;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, text, &len);
    snprintf(g.why, sizeof(g.why), "%s: %s", what, text);
    return -EIO;
}

static const char *why(void)
{
    return g.why;
}

/* ---- types and operations ------------------------------------------------------------------- */

/* The type that MPI sums as hvd.h says. 16-bit floats have none: MPI does not sum them here. For
 * moving data only the size counts: see move_type(). */
static MPI_Datatype sum_type(enum hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_UINT8:
        return MPI_UINT8_T;
    case HVD_INT8:
        return MPI_INT8_T;
    case HVD_UINT16:
        return MPI_UINT16_T;
    case HVD_INT16:
        return MPI_INT16_T;
    case HVD_INT32:
        return MPI_INT32_T;
    case HVD_INT64:
        return MPI_INT64_T;
    case HVD_FLOAT32:
        return MPI_FLOAT;
    case HVD_FLOAT64:
        return MPI_DOUBLE;
    case HVD_BOOL:
        return MPI_C_BOOL;
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
    case HVD_DTYPES:
        break;
    }
    return MPI_DATATYPE_NULL;
}

static MPI_Datatype move_type(enum hvd_dtype dtype)
{
    switch (dtype) {
    case HVD_UINT8:
    case HVD_INT8:
    case HVD_BOOL:
        return MPI_BYTE;
    case HVD_UINT16:
    case HVD_INT16:
    case HVD_FLOAT16:
    case HVD_BFLOAT16:
        return MPI_UINT16_T;
    case HVD_INT32:
    case HVD_FLOAT32:
        return MPI_UINT32_T;
    case HVD_INT64:
    case HVD_FLOAT64:
        return MPI_UINT64_T;
    case HVD_DTYPES:
        break;
    }
    return MPI_DATATYPE_NULL;
}

/* Carries out the operations that MPI lacks: min and max that propagate NaN, and all on bool. */
static void reduce(enum hvd_op op, void *in, void *inout, int n, MPI_Datatype type)
{
    enum hvd_dtype dtype = type == MPI_FLOAT    ? HVD_FLOAT32
                           : type == MPI_DOUBLE ? HVD_FLOAT64
                                                : HVD_BOOL;
    g.reduce(dtype, op, in, inout, (size_t)n);
}

static void own_sum(void *in, void *inout, int *n, MPI_Datatype *type)
{
    reduce(HVD_SUM, in, inout, *n, *type);
}

static void own_min(void *in, void *inout, int *n, MPI_Datatype *type)
{
    reduce(HVD_MIN, in, inout, *n, *type);
}

static void own_max(void *in, void *inout, int *n, MPI_Datatype *type)
{
    reduce(HVD_MAX, in, inout, *n, *type);
}

static void own_product(void *in, void *inout, int *n, MPI_Datatype *type)
{
    reduce(HVD_PRODUCT, in, inout, *n, *type);
}

/* Creates each operation twice. MPI may change the order of the operands of g.own, and must keep it
 * for g.ordered: a minimum of -0 and +0 depends on the order, and all ranks must get the same bits.
 */
static int make_ops(void)
{
    static MPI_User_function *const functions[HVD_OPS] = {
        [HVD_SUM] = own_sum, [HVD_MIN] = own_min, [HVD_MAX] = own_max, [HVD_PRODUCT] = own_product};
    int rc = MPI_SUCCESS;
    for (int i = 0; i < HVD_OPS && rc == MPI_SUCCESS; i++) {
        if (!functions[i])
            continue;
        rc = MPI_Op_create(functions[i], 1, &g.own[i]);
        if (rc == MPI_SUCCESS)
            rc = MPI_Op_create(functions[i], 0, &g.ordered[i]);
    }
    return failed("MPI_Op_create", rc);
}

static MPI_Op op_of(enum hvd_dtype dtype, enum hvd_op op)
{
    bool real = dtype == HVD_FLOAT32 || dtype == HVD_FLOAT64;
    if (dtype == HVD_BOOL)
        return g.own[op];
    if (op == HVD_SUM)
        return MPI_SUM;
    if (op == HVD_PRODUCT)
        return MPI_PROD;
    if (real)
        return g.ordered[op];
    return op == HVD_MIN ? MPI_MIN : MPI_MAX;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void library(char *dst, size_t size)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int len = 0;
    MPI_Get_library_version(text, &len);
    text[strcspn(text, "\n")] = '\0';
    snprintf(dst, size, "%s", text);
}

static const int levels[] = {[MPI_LEVEL_SINGLE] = MPI_THREAD_SINGLE,
                             [MPI_LEVEL_FUNNELED] = MPI_THREAD_FUNNELED,
                             [MPI_LEVEL_SERIALIZED] = MPI_THREAD_SERIALIZED,
                             [MPI_LEVEL_MULTIPLE] = MPI_THREAD_MULTIPLE};

static enum mpi_level level_of(int provided)
{
    enum mpi_level level = MPI_LEVEL_MULTIPLE;
    while (level > MPI_LEVEL_SINGLE && levels[level] > provided)
        level--;
    return level;
}

static enum mpi_state state(enum mpi_level *ret_level)
{
    int begun = 0, over = 0, provided = MPI_THREAD_SINGLE;
    MPI_Initialized(&begun);
    MPI_Finalized(&over);
    if (begun && !over)
        MPI_Query_thread(&provided);
    *ret_level = level_of(provided);
    return over ? MPI_STATE_OVER : begun ? MPI_STATE_RUNS : MPI_STATE_NEW;
}

static int init(enum mpi_level wanted, enum mpi_level *ret_level)
{
    int provided = MPI_THREAD_SINGLE;
    int rc = failed("MPI_Init_thread", MPI_Init_thread(NULL, NULL, levels[wanted], &provided));
    *ret_level = level_of(provided);
    return rc;
}

static int prepare(mpi_reduce_f f, int *ret_rank, int *ret_size)
{
    g.reduce = f;
    int rc = failed("MPI_Comm_rank", MPI_Comm_rank(MPI_COMM_WORLD, ret_rank));
    if (rc == 0)
        rc = failed("MPI_Comm_size", MPI_Comm_size(MPI_COMM_WORLD, ret_size));
    return rc == 0 ? make_ops() : rc;
}

static int finalize(void)
{
    return failed("MPI_Finalize", MPI_Finalize());
}

/* ---- communicators -------------------------------------------------------------------------- */

static int comm_create(int color, int key, void **ret)
{
    MPI_Comm *comm = malloc(sizeof(*comm));
    if (!comm)
        return -ENOMEM;
    int rc = failed("MPI_Comm_split", MPI_Comm_split(MPI_COMM_WORLD, color, key, comm));
    if (rc == 0)
        rc = failed("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN));
    if (rc < 0) {
        free(comm);
        comm = NULL;
    }
    *ret = comm;
    return rc;
}

static void comm_destroy(void *comm)
{
    if (comm)
        MPI_Comm_free(comm);
    free(comm);
}

/* ---- operations ----------------------------------------------------------------------------- */

static int start_call(MPI_Comm comm, const struct mpi_call *c, MPI_Request *r)
{
    MPI_Datatype sums = sum_type(c->dtype), moves = move_type(c->dtype);
    switch (c->kind) {
    case HVD_ALLREDUCE:
        return MPI_Iallreduce(c->in, c->out, c->count, sums, op_of(c->dtype, c->op), comm, r);
    case HVD_REDUCESCATTER:
        return MPI_Ireduce_scatter(c->in, c->out, c->recv_counts, sums, op_of(c->dtype, c->op),
                                   comm, r);
    case HVD_ALLGATHER:
        return MPI_Iallgatherv(c->in, c->count, moves, c->out, c->recv_counts, c->recv_at, moves,
                               comm, r);
    case HVD_BROADCAST:
        return MPI_Ibcast(c->out, c->count, moves, c->root, comm, r);
    case HVD_ALLTOALL:
        return MPI_Ialltoallv(c->in, c->send_counts, c->send_at, moves, c->out, c->recv_counts,
                              c->recv_at, moves, comm, r);
    case HVD_BARRIER:
        return MPI_Ibarrier(comm, r);
    case HVD_KINDS:
        break;
    }
    return MPI_ERR_ARG;
}

/* From here on the request belongs to the caller, which tests it:
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
static int keep(const char *what, int code, const MPI_Request *r, struct mpi_request *ret)
{
    memcpy(ret, r, sizeof(*r));
    return failed(what, code);
}

static int start(void *comm, const struct mpi_call *call, struct mpi_request *ret)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int code = start_call(*(MPI_Comm *)comm, call, &r);
    return keep("a collective of MPI", code, &r, ret);
}

static int send_block(void *comm, const void *data, size_t bytes, int to, struct mpi_request *ret)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Isend(data, (int)bytes, MPI_BYTE, to, TAG, *(MPI_Comm *)comm, &r);
    return keep("MPI_Isend", code, &r, ret);
}

static int recv_block(void *comm, void *data, size_t bytes, int from, struct mpi_request *ret)
{
    MPI_Request r = MPI_REQUEST_NULL;
    int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, TAG, *(MPI_Comm *)comm, &r);
    return keep("MPI_Irecv", code, &r, ret);
}
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static int test(struct mpi_request *request)
{
    MPI_Request r;
    int done = 0;
    memcpy(&r, request, sizeof(r));
    int rc = failed("MPI_Test", MPI_Test(&r, &done, MPI_STATUS_IGNORE));
    memcpy(request, &r, sizeof(r));
    return rc < 0 ? rc : !done;
}

/* MPI has no call that only makes progress; a probe that finds nothing does. */
static void progress(void)
{
    int there;
    MPI_Iprobe(0, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);
}

HVD_API extern const struct mpi_plugin hvd_mpi_plugin;
const struct mpi_plugin hvd_mpi_plugin = {
    .version = MPI_PLUGIN_VERSION,
    .major = MAJOR,
    .family = FAMILY,
    .built_for = BUILT_FOR,
    .anchor = (const void *)MPI_Get_library_version,
    .library = library,
    .state = state,
    .init = init,
    .prepare = prepare,
    .finalize = finalize,
    .comm_create = comm_create,
    .comm_destroy = comm_destroy,
    .start = start,
    .send = send_block,
    .recv = recv_block,
    .test = test,
    .progress = progress,
    .why = why,
};
