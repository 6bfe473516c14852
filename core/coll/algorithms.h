/* SPDX-License-Identifier: Apache-2.0
 *
 * algorithms: declares the algorithms of core/coll. coll_select.c has their order and the reasons
 * for it.
 */
#ifndef HVD_COLL_ALGORITHMS_H
#define HVD_COLL_ALGORITHMS_H

#include "core/coll/algorithm.h"

extern const struct algorithm alone_algorithm;
extern const struct algorithm barrier_algorithm;
extern const struct algorithm broadcast_algorithm;
extern const struct algorithm allgather_algorithm;
extern const struct algorithm alltoall_algorithm;
extern const struct algorithm reducescatter_algorithm;
extern const struct algorithm direct_allreduce_algorithm;
extern const struct algorithm ring_allreduce_algorithm;
extern const struct algorithm hier_allreduce_algorithm;
extern const struct algorithm shm_sums_algorithm;
extern const struct algorithm shm_gather_algorithm;
extern const struct algorithm shm_alltoall_algorithm;
extern const struct algorithm shm_scatter_algorithm;

#endif
