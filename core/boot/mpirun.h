/* SPDX-License-Identifier: Apache-2.0
 *
 * mpirun: ranks of an mpirun that hvd cannot use to exchange cards, but which sets their numbers.
 *
 * Hydra (MPICH, Intel MPI, MVAPICH) and mpirun_rsh speak no PMIx; an Open MPI 4 may have a private
 * PMIx with other names. If the user sets HVD_RENDEZVOUS, the ranks meet there. Else hvd_init()
 * fails, because each rank would train alone.
 */
#ifndef HVD_BOOT_MPIRUN_H
#define HVD_BOOT_MPIRUN_H

#include <stdbool.h>

/* Returns whether this rank of Open MPI needs no libpmix, because its numbers are enough: with
 * HVD_RENDEZVOUS, or when it is the only rank. */
bool mpirun_will_do(void);

#endif
