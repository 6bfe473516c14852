/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: the one object of libhvd_mpi.so, which alone is compiled against the site's MPI.
 *
 * libhvd.so loads it at run time (mpi_library.h); nothing else of hvd knows a type of MPI.
 * library() and over() may be called at any time, the others as mpi_process.h says. Functions
 * return 0 or a negative errno; why() returns a sentence about the last failure.
 */
#ifndef HVD_BACKEND_MPI_PLUGIN_H
#define HVD_BACKEND_MPI_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

#define MPI_PLUGIN_VERSION 3
#define MPI_PLUGIN_SYMBOL  "hvd_mpi_plugin"

/* MPIs of a family have the same ABI if their files have the same name (libmpi.so.12), which the
 * loader checks: MPICH and its derivatives have one ABI since 2014. */
#define MPI_FAMILY_OPEN  "Open MPI"
#define MPI_FAMILY_MPICH "MPICH"
#define MPI_FAMILY_OTHER "other"

/* Room for an MPI_Comm and an MPI_Request. */
typedef uint64_t mpi_comm, mpi_request;

/* The arguments and results of a plug-in call that may block. */
struct mpi_setup {
    int rank, size; /* of this process in MPI_COMM_WORLD */
    bool ours;      /* hvd has started MPI, not the program */
    bool multiple;  /* MPI_THREAD_MULTIPLE; false: MPI_THREAD_SERIALIZED */
    int color, key; /* of comm: the ranks with the same color (0 or more), in the order of key */
    mpi_comm comm;
};

/* A collective that moves elements of elem (1, 2, 4 or 8) bytes. Counts and places are elements;
 * the arrays have a number for each rank of the communicator and stay valid until the end. */
struct mpi_call {
    enum hvd_kind kind; /* allgather, broadcast or alltoall */
    size_t elem;
    const void *in;  /* alltoall: does not overlap out */
    void *out;       /* allgather: this rank's part is in its place already; broadcast: the data */
    int count, root; /* broadcast */
    const int *send_counts, *send_places; /* alltoall */
    const int *recv_counts, *recv_places; /* alltoall, allgather */
};

struct mpi_plugin {
    uint32_t version;      /* MPI_PLUGIN_VERSION */
    uint32_t major;        /* major version of the Open MPI that the plugin was compiled for */
    const char *family;    /* MPI_FAMILY_... of the MPI that the plugin was compiled for */
    const char *built_for; /* "Open MPI 4" */

    int (*library)(char *text, int *len); /* MPI_Get_library_version */
    bool (*over)(void);                   /* whether MPI_Finalize was called */

    /* These may block. enter starts MPI unless it runs (-ENOTSUP: not for enough threads), leave
     * finalizes it unless that is done, split creates comm, drop frees it. */
    int (*enter)(struct mpi_setup *s);
    int (*leave)(struct mpi_setup *s);
    int (*split)(struct mpi_setup *s);
    int (*drop)(struct mpi_setup *s);

    /* start: begins a collective; test: 1 not done yet, 0 done. */
    int (*start)(mpi_comm comm, const struct mpi_call *call, mpi_request *ret);
    int (*test)(mpi_request *request);
    /* Makes MPI send what it still holds. Even after a request is done on this rank, MPI may hold
     * the last message to the other rank until it is called again. */
    void (*progress)(void);

    const char *(*why)(void);
};

#endif
