/* SPDX-License-Identifier: Apache-2.0
 *
 * launch_adasum: an Adasum as a row of operations of coll's. An alltoall gives each rank its part
 * of all ranks' vectors. For each level of the tree (coll/adasum.h) the ranks sum the dot products
 * of their parts, and combine the parts. An allgather puts the result together. Tensors in host
 * memory only. Called with the progress lock held; failures are set in e->trouble.
 */
#ifndef HVD_ENGINE_LAUNCH_ADASUM_H
#define HVD_ENGINE_LAUNCH_ADASUM_H

#include <stddef.h>
#include <stdint.h>

struct adasum_pair;
struct batch;
struct circle;
struct launch;

/* Stays while the ranks change, because an operation in flight then may still have to be finished.
 */
struct launch_adasum {
    uint8_t *parts;  /* this rank's part of each rank's tensor; the first one becomes the result */
    uint8_t *values; /* the same as float, if they are halves */
    uint8_t *whole;  /* the result, where it may not be written to the output at once */
    size_t parts_cap, values_cap, whole_cap; /* bytes */
    double *dots;                            /* [3] for each pair */
    struct adasum_pair *pairs;
    int npairs, ranks; /* pairs of the present level; ranks for which there is room */
};

void launch_adasum_fini(struct launch_adasum *a);

/* The number of operations, the last of which gives the result. */
unsigned launch_adasum_steps(const struct circle *c);

/* Fills l->op with operation number batch->steps. */
int launch_adasum(struct circle *c, struct launch *l, const struct batch *batch);

/* Takes the result of operation number batch->steps, which is not the last one. */
void launch_adasum_take(struct circle *c, struct launch *l, const struct batch *batch);

#endif
