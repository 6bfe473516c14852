/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_host: the ranks of one host as forked processes that share a segment, without bootstrap and
 * mesh, for tests and benchmarks of shared memory algorithms.
 */
#ifndef HVD_TESTS_SHM_HOST_H
#define HVD_TESTS_SHM_HOST_H

#include "core/transport/mesh.h"
#include "core/transport/shm.h"

/* One rank's program, in its own process. Returns 0 or an exit code 1..100. */
typedef int shm_host_f(struct mesh *mesh, void *ctx);

/* Runs program on every rank, each on its own processor if there are enough. Returns 0, the first
 * exit code that is not 0, 128 + signal, or -errno. Every rank is ended after so many seconds. */
int shm_host_run(int ranks, shm_host_f *program, void *ctx, unsigned seconds);

/* Calls progress until it does not return 1. Spins briefly if every rank has a processor, then
 * sleeps on the doorbell. */
int shm_host_drive(struct mesh *mesh, int (*progress)(void *ctx), void *ctx);

#endif
