/* SPDX-License-Identifier: Apache-2.0
 *
 * shm: the two probes of shared memory, with the folder as an argument for tests. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBES_SHM_H
#define HVD_DIAGNOSTICS_PROBES_SHM_H

#include "core/base/buf.h"
#include "diagnostics/machine.h"

/* Writes the answer "shm" for a folder. room: bytes that this process may still allocate before
 * it reaches its cgroup's limit; with too little room the trial is skipped. 0 or -errno. */
int shm_look(struct buf *out, const char *dir, uint64_t room);

/* Writes the answer "shm-files" for a folder. */
int shm_files(struct buf *out, const struct machine *m, const char *dir);

#endif
