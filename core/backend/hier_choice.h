/* SPDX-License-Identifier: Apache-2.0
 *
 * hier_choice: whether tensors of GPUs are summed in two levels (hier.h). Pure: what all ranks want
 * and have in, one answer out, the same on every rank that is given the same.
 *
 * Where the user says nothing it is used where NCCL has nothing but sockets between the hosts:
 * there both go the same way over the network, and two levels send less: a host's ranks together as
 * much as one of them would alone.
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
    const uint8_t *wishes; /* [size], of all ranks */
    int size;
    bool sockets;           /* every rank says so of NCCL (nccl_net.h) */
    bool kernels;           /* every rank has ours */
    const int *local_sizes; /* [hosts] */
    int hosts;
};

/* 1: it is used; 0: it is not. Why goes to ret_why->msg, whose code stays 0. -ENOTSUP: the ranks
 * want different things; ret_why names them. */
int hier_choose(const struct hier_facts *facts, struct err *ret_why);

#endif
