/* SPDX-License-Identifier: Apache-2.0
 *
 * mpirun: ranks whose mpirun cannot be asked for the others, but has told them their numbers.
 *
 * Hydra (MPICH, Intel MPI, MVAPICH) and mpirun_rsh speak no PMIx, and an Open MPI 4 may have a PMIx
 * of its own under other names. Where HVD_RENDEZVOUS is set by hand the ranks meet there, else they
 * are refused: each would be a world of its own.
 */
#ifndef HVD_BOOT_MPIRUN_H
#define HVD_BOOT_MPIRUN_H

#include <stdbool.h>

/* For a rank of Open MPI without a libpmix: do its numbers do? There is HVD_RENDEZVOUS, or it is
 * the only one. */
bool mpirun_will_do(void);

#endif
