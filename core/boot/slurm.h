/* SPDX-License-Identifier: Apache-2.0
 *
 * slurm: what Slurm tells the tasks of a step in their environment.
 */
#ifndef HVD_BOOT_SLURM_H
#define HVD_BOOT_SLURM_H

#include <stddef.h>
#include <stdint.h>

/* Stores the first host of a list such as "node[03-05,9]-ib,login". -EINVAL: not a list, or too
 * long. */
int slurm_first_host(const char *list, char *ret_host, size_t size);

/* The port of a step, equal on all its tasks, below the range of ephemeral ports. */
int slurm_port(uint32_t job, uint32_t step);

#endif
