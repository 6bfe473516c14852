/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_plugin: the one object of libhvd_mpi.so, which alone is compiled against the site's MPI.
 *
 * libhvd.so loads it at run time (mpi_load.h); nothing else of hvd knows a type of MPI. Every call
 * but library() and state() is for whoever may call MPI just then (mpi_process.h). Functions return
 * 0 or a negative errno; why() has MPI's words for the last failure.
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
    /* Not in place: MPI wants that of all ranks or of none, and chooses by it how they talk. Not
     * used by a broadcast. */
    const void *in;
    void *out;
    int count; /* allreduce, broadcast: of the tensor; allgather: what this rank gives */
    int root;
    const int *send_counts, *send_at; /* alltoall */
    const int *recv_counts, *recv_at; /* alltoall, allgather; reducescatter: counts */
};

struct mpi_plugin {
    uint32_t version;      /* MPI_PLUGIN_VERSION */
    uint32_t major;        /* of the Open MPI it was compiled against */
    const char *family;    /* of what it was compiled against (mpi_version.h) */
    const char *built_for; /* "Open MPI 4.1.4" */
    const void *anchor;    /* an address inside libmpi */

    /* What libmpi says it is; at any time. */
    void (*library)(char *dst, size_t size);
    enum mpi_state (*state)(enum mpi_level *ret_level);

    int (*init)(enum mpi_level wanted, enum mpi_level *ret_level);
    /* Once, after init: reduces what MPI has no or another operation for. */
    int (*prepare)(mpi_reduce_f reduce, int *ret_rank, int *ret_size);
    int (*finalize)(void);

    /* Of all ranks, by color (0 or more) in the order of key. Collective. */
    int (*comm_create)(int color, int key, void **ret);
    void (*comm_destroy)(void *comm);

    /* Each begins; test: 1 not done yet, 0 done. */
    int (*start)(void *comm, const struct mpi_call *call, struct mpi_request *ret);
    int (*send)(void *comm, const void *data, size_t bytes, int to, struct mpi_request *ret);
    int (*recv)(void *comm, void *data, size_t bytes, int from, struct mpi_request *ret);
    int (*test)(struct mpi_request *request);
    /* Moves what others still wait for. A request that is done here may not be done with: MPI may
     * hold its last words to the other rank until it is called again. */
    void (*progress)(void);

    const char *(*why)(void);
};

#endif
