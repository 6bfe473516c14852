/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: see mpi_plugin.h. The source of libhvd_mpi.so, not of libhvd.so: compiled with the
 * site's mpicc, where there is one.
 */
#include "core/backend/mpi_plugin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#if defined(OPEN_MPI)
#define FAMILY    MPI_FAMILY_OPEN
#define MAJOR     OMPI_MAJOR_VERSION
#define TEXT(x)   #x
#define VALUE(x)  TEXT(x)
#define BUILT_FOR "Open MPI " VALUE(OMPI_MAJOR_VERSION)
#elif defined(MPICH_NAME) || defined(MPICH_VERSION)
#define FAMILY    MPI_FAMILY_MPICH
#define MAJOR     0
#define BUILT_FOR "an MPI with MPICH's ABI"
#else
#define FAMILY    MPI_FAMILY_OTHER
#define MAJOR     0
#define BUILT_FOR "another MPI"
#endif

_Static_assert(sizeof(MPI_Request) <= sizeof(mpi_request), "room for an MPI_Request");
_Static_assert(sizeof(MPI_Comm) <= sizeof(mpi_comm), "room for an MPI_Comm");

static struct {
    bool ours; /* this plugin has called MPI_Init_thread */
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

static int refused(const char *sentence)
{
    snprintf(g.why, sizeof(g.why), "%s", sentence);
    return -ENOTSUP;
}

static const char *why(void)
{
    return g.why;
}

/* ---- life ----------------------------------------------------------------------------------- */

static bool over(void)
{
    int yes = 0;
    MPI_Finalized(&yes);
    return yes;
}

static int enter(struct mpi_setup *s)
{
    int runs = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&runs);
    if (runs)
        MPI_Query_thread(&level);
    else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return refused("MPI_Init_thread has failed");
    g.ours = g.ours || !runs;
    if (!g.ours && level < MPI_THREAD_MULTIPLE)
        return refused("this program has started MPI for fewer threads than hvd needs beside it: "
                       "call MPI_Init_thread with MPI_THREAD_MULTIPLE, or leave starting it to "
                       "hvd_init()");
    if (level < MPI_THREAD_SERIALIZED)
        return refused("this MPI allows calls from one thread only: hvd needs "
                       "MPI_THREAD_SERIALIZED or more. Set what this MPI wants for that (MVAPICH2: "
                       "MV2_ENABLE_AFFINITY=0), or do without HVD_BACKEND=mpi");
    s->ours = g.ours;
    s->multiple = level >= MPI_THREAD_MULTIPLE;
    int rc = failed("MPI_Comm_rank", MPI_Comm_rank(MPI_COMM_WORLD, &s->rank));
    return rc < 0 ? rc : failed("MPI_Comm_size", MPI_Comm_size(MPI_COMM_WORLD, &s->size));
}

static int leave(struct mpi_setup *s)
{
    return over() ? 0 : failed("MPI_Finalize", MPI_Finalize());
}

static MPI_Comm comm_of(mpi_comm comm)
{
    MPI_Comm c;
    memcpy(&c, &comm, sizeof(c));
    return c;
}

static int split(struct mpi_setup *s)
{
    MPI_Comm c;
    int rc = failed("MPI_Comm_split", MPI_Comm_split(MPI_COMM_WORLD, s->color, s->key, &c));
    if (rc == 0)
        rc = failed("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler(c, MPI_ERRORS_RETURN));
    memcpy(&s->comm, &c, sizeof(c));
    return rc;
}

static int drop(struct mpi_setup *s)
{
    MPI_Comm c = comm_of(s->comm);
    return over() ? 0 : failed("MPI_Comm_free", MPI_Comm_free(&c));
}

/* ---- operations ----------------------------------------------------------------------------- */

/* The request belongs to the caller, which tests it:
 * NOLINTBEGIN(clang-analyzer-optin.mpi.MPI-Checker) */
static int start(mpi_comm comm, const struct mpi_call *c, mpi_request *ret)
{
    MPI_Datatype type = c->elem == 1   ? MPI_BYTE
                        : c->elem == 2 ? MPI_UINT16_T
                        : c->elem == 4 ? MPI_UINT32_T
                                       : MPI_UINT64_T;
    MPI_Request r = MPI_REQUEST_NULL;
    int code;
    if (c->kind == HVD_ALLGATHER)
        code = MPI_Iallgatherv(MPI_IN_PLACE, 0, type, c->out, c->recv_counts, c->recv_places, type,
                               comm_of(comm), &r);
    else if (c->kind == HVD_BROADCAST)
        code = MPI_Ibcast(c->out, c->count, type, c->root, comm_of(comm), &r);
    else
        code = MPI_Ialltoallv(c->in, c->send_counts, c->send_places, type, c->out, c->recv_counts,
                              c->recv_places, type, comm_of(comm), &r);
    memcpy(ret, &r, sizeof(r));
    return failed("a collective of MPI", code);
}
/* NOLINTEND(clang-analyzer-optin.mpi.MPI-Checker) */

static int test(mpi_request *request)
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
    .library = MPI_Get_library_version,
    .over = over,
    .enter = enter,
    .leave = leave,
    .split = split,
    .drop = drop,
    .start = start,
    .test = test,
    .progress = progress,
    .why = why,
};
