/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_run_private: what the files of nccl_run share: nccl_run.c (operations, and their end) and
 * nccl_run_epoch.c (the communicator of an epoch).
 */
#ifndef HVD_BACKEND_NCCL_RUN_PRIVATE_H
#define HVD_BACKEND_NCCL_RUN_PRIVATE_H

#include "core/backend/nccl_run.h"

/* -ENOTCONN: there is no communicator; err says why. */
int nccl_run_none(const struct nccl_run *run, struct err *err);

/* Whether the last communicator is still being aborted; goes on with that. */
bool nccl_run_aborting(struct nccl_run *run);

#endif
