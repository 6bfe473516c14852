/* SPDX-License-Identifier: Apache-2.0
 *
 * slurm: what a Slurm step tells its tasks in the environment.
 */
#ifndef HVD_BOOT_SLURM_H
#define HVD_BOOT_SLURM_H

#include <stddef.h>
#include <stdint.h>

/* The first host of a list such as "node[03-05,9]-ib,login"; -EINVAL when it is none or too long.
 */
int slurm_first_host(const char *list, char *ret_host, size_t size);

/* A port for a step, the same on all of its tasks, below the range of ports that systems give out.
 */
int slurm_port(uint32_t job, uint32_t step);

#endif
