/* SPDX-License-Identifier: Apache-2.0
 *
 * hier_choice: whether tensors of GPUs are summed in two levels (hier.h). Pure: what all ranks want
 * and have in, one answer out, the same on every rank that is given the same.
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
    bool network; /* the user has named a back end of the host's for what is between hosts */
    bool kernels; /* every rank has ours */
    const int *local_sizes; /* [hosts] */
    int hosts;
};

/* 1: it is used; 0: it is not, and err->msg says why where it was wished for (else it is empty).
 * -ENOTSUP: the ranks want different things; err names them. */
int hier_choose(const struct hier_facts *facts, struct err *err);

#endif
