/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_adasum: an Adasum as a row of operations of coll's. The vectors that are combined are the
 * ranks' tensors or, by host (signature.by_host), the averages of the tensors on each host:
 *
 *     average   by host only: an alltoall between the ranks of each host gives each of them its
 *               piece of all tensors there, which it averages
 *     scatter   an alltoall gives each rank its part of all vectors
 *     levels    for each level of the tree (coll/adasum.h) an allreduce sums the dot products of
 *               the parts; then each rank combines its parts
 *     gather    an allgather puts the result together
 *
 * Of tensors on GPUs the parts are in host memory: the first operation reads the GPU's memory and
 * the last one writes it (backend/staged). Called with the progress lock held; failures are set in
 * e->trouble.
 */
#ifndef HVD_ENGINE_LAUNCH_ADASUM_H
#define HVD_ENGINE_LAUNCH_ADASUM_H

#include <stddef.h>
#include <stdint.h>

struct adasum_pair;
struct batch;
struct circle;
struct launch;

struct adasum_memory {
    uint8_t *at;
    size_t size; /* bytes */
};

/* Stays while the ranks change, because an operation in flight then may still have to be finished.
 */
struct launch_adasum {
    struct adasum_memory parts; /* what an alltoall has brought, by rank */
    struct adasum_memory mean;  /* by host: this rank's piece of its host's average */
    struct adasum_memory
        values; /* this rank's part of each vector; not used where it is in parts */
    /* The result, where it may not be written to the output at once. For tensors on GPUs it is in
     * launch.gpu. */
    struct adasum_memory whole;
    double *dots; /* [3] for each pair */
    struct adasum_pair *pairs;
    const void **sources; /* of an average */
    int npairs, ranks;    /* pairs of the present level; ranks for which there is room */
};

void launch_adasum_fini(struct launch_adasum *a);

/* The number of operations, the last of which gives the result. */
unsigned launch_adasum_steps(const struct circle *c, const struct batch *batch);

/* Fills l->op with operation number batch->steps. */
int launch_adasum(struct circle *c, struct launch *l, const struct batch *batch);

/* Takes the result of operation number batch->steps, which is not the last one. */
void launch_adasum_take(struct circle *c, struct launch *l, const struct batch *batch);

#endif
