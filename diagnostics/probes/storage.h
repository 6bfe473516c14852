/* SPDX-License-Identifier: Apache-2.0
 *
 * storage: the two looks at file systems, with what they look at as arguments for tests. The caller
 * is a process that may hang: a child.
 */
#ifndef HVD_DIAGNOSTICS_PROBES_STORAGE_H
#define HVD_DIAGNOSTICS_PROBES_STORAGE_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "diagnostics/mounts.h"

/* Answer "disk-tmp" or "disk-data" for a folder. */
void storage_look(struct buf *out, const char *path);

/* Answer "mounts" for those that may hang; returns after limit_ms. */
void storage_mounts(struct buf *out, const char *mountinfo, bool (*may_hang)(const struct mount *),
                    int limit_ms);

#endif
