/* SPDX-License-Identifier: Apache-2.0
 *
 * hier_choice: whether tensors of GPUs are summed in two levels (hier.h). Pure: from what all ranks
 * want and have it computes one answer, which is the same on every rank. Unless the user chooses,
 * two levels are used if NCCL has only sockets between hosts: both ways use the same network then,
 * and with two levels all ranks of a host together send only as many bytes as one rank does without
 * them.
 */
#ifndef HVD_BACKEND_HIER_CHOICE_H
#define HVD_BACKEND_HIER_CHOICE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

/* HVD_HIERARCHICAL_ALLREDUCE. */
enum hier_wish { HIER_UNSET, HIER_NO, HIER_YES };

int hier_wish_read(enum hier_wish *ret, struct err *err);

struct hier_facts {
    const uint8_t *wishes; /* [size] enum hier_wish of each rank */
    int size;
    bool sockets;           /* on every rank NCCL has only sockets between hosts (nccl_net.h) */
    bool kernels;           /* every rank has hvd's kernels */
    const int *local_sizes; /* [hosts] */
    int hosts;
};

/* 1: two levels are used; 0: they are not. The reason goes to ret_why->msg; its code stays 0.
 * -ENOTSUP: the ranks want different things; ret_why names them. */
int hier_choose(const struct hier_facts *facts, struct err *ret_why);

#endif
