/* SPDX-License-Identifier: Apache-2.0
 *
 * coll_select: which algorithm runs an operation: the first of this table that applies.
 */
#include "core/coll/algorithms.h"

const struct algorithm *const coll_algorithms[] = {
    &alone_algorithm,
    /* one host: memory is faster than links */
    &shm_sums_algorithm,
    &shm_gather_algorithm,
    &shm_alltoall_algorithm,
    &shm_scatter_algorithm,
    /* no elements: nothing to send, but no rank may finish before all have started */
    &barrier_algorithm,
    &direct_allreduce_algorithm,
    /* two halves of one algorithm: for ranks that are alone on their host, and for all other ranks
     */
    &ring_allreduce_algorithm,
    &hier_allreduce_algorithm,
    &allgather_algorithm,
    &broadcast_algorithm,
    &alltoall_algorithm,
    &reducescatter_algorithm,
    NULL,
};
