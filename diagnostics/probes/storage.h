/* SPDX-License-Identifier: Apache-2.0
 *
 * storage: the two probes of file systems, with their subjects as arguments for tests. They may
 * hang: the caller is a child process.
 */
#ifndef HVD_DIAGNOSTICS_PROBES_STORAGE_H
#define HVD_DIAGNOSTICS_PROBES_STORAGE_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "diagnostics/mounts.h"

/* Writes the answer "disk-tmp" or "disk-data" for a folder. */
void storage_look(struct buf *out, const char *path);

/* Writes the answer "mounts" for the mounts that may_hang selects; returns after limit_ms at
 * latest. */
void storage_mounts(struct buf *out, const char *mountinfo, bool (*may_hang)(const struct mount *),
                    int limit_ms);

#endif
