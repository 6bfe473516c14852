/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: the one object of libhvd_mpi.so, which alone is compiled against the site's MPI.
 *
 * libhvd.so loads it at run time (mpi_load.h); nothing else of hvd knows a type of MPI. library()
 * and state() may be called at any time, all other functions only by the thread that may call MPI
 * at that moment (mpi_process.h). Functions return 0 or a negative errno; why() returns MPI's text
 * about the last failure.
 */
#ifndef HVD_BACKEND_MPI_PLUGIN_H
#define HVD_BACKEND_MPI_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include <hvd.h>

#define MPI_PLUGIN_VERSION 2
#define MPI_PLUGIN_SYMBOL  "hvd_mpi_plugin"

enum mpi_level { MPI_LEVEL_SINGLE, MPI_LEVEL_FUNNELED, MPI_LEVEL_SERIALIZED, MPI_LEVEL_MULTIPLE };
enum mpi_state { MPI_STATE_NEW, MPI_STATE_RUNS, MPI_STATE_OVER };

/* Room for an MPI_Request. */
struct mpi_request {
    uint64_t word[2];
};

/* inout = in op inout, n elements. */
typedef void (*mpi_reduce_f)(enum hvd_dtype dtype, enum hvd_op op, const void *in, void *inout,
                             size_t n);

/* A collective. Counts and places are elements of dtype. */
struct mpi_call {
    enum hvd_kind kind;
    enum hvd_dtype dtype;
    enum hvd_op op; /* sums: SUM, MIN, MAX, PRODUCT; not of 16-bit floats */
    /* Never equal to out: MPI requires that all ranks or none operate in place, and chooses its
     * algorithm by that. Not used by a broadcast. */
    const void *in;
    void *out;
    int count; /* elements. allreduce, broadcast: of the tensor; allgather: of this rank's part */
    int root;
    const int *send_counts, *send_at; /* alltoall */
    const int *recv_counts, *recv_at; /* alltoall, allgather; reducescatter: counts */
};

struct mpi_plugin {
    uint32_t version;   /* MPI_PLUGIN_VERSION */
    uint32_t major;     /* major version of the Open MPI that the plugin was compiled against */
    const char *family; /* family of the MPI that the plugin was compiled against (mpi_version.h) */
    const char *built_for; /* "Open MPI 4.1.4" */
    const void *anchor;    /* an address inside libmpi */

    /* Writes libmpi's own version text. */
    void (*library)(char *dst, size_t size);
    enum mpi_state (*state)(enum mpi_level *ret_level);

    int (*init)(enum mpi_level wanted, enum mpi_level *ret_level);
    /* Call once, after init. reduce: for operations that MPI lacks or defines in another way. */
    int (*prepare)(mpi_reduce_f reduce, int *ret_rank, int *ret_size);
    int (*finalize)(void);

    /* Creates a communicator of the ranks with the same color (0 or more), in the order of key.
     * Collective over all ranks. */
    int (*comm_create)(int color, int key, void **ret);
    void (*comm_destroy)(void *comm);

    /* start, send and recv begin an operation; test: 1 not done yet, 0 done. */
    int (*start)(void *comm, const struct mpi_call *call, struct mpi_request *ret);
    int (*send)(void *comm, const void *data, size_t bytes, int to, struct mpi_request *ret);
    int (*recv)(void *comm, void *data, size_t bytes, int from, struct mpi_request *ret);
    int (*test)(struct mpi_request *request);
    /* Makes MPI send what it still holds. Even after a request is done on this rank, MPI may hold
     * the last message to the other rank until it is called again. */
    void (*progress)(void);

    const char *(*why)(void);
};

#endif
