/* SPDX-License-Identifier: Apache-2.0
 *
 * tar: writes an archive (ustar, POSIX pax records for long names) into a buffer. Pure. We have our
 * own writer because it is a hundred lines; a library would be one more dependency of the image.
 */
#ifndef HVD_DIAGNOSTICS_CLI_TAR_H
#define HVD_DIAGNOSTICS_CLI_TAR_H

#include <stdint.h>

#include "core/base/buf.h"

/* kind: 'f' file, 'd' folder, 'l' symbolic link (bytes: its target). Out of memory: out->failed. */
void tar_put(struct buf *out, char kind, const char *path, const void *bytes, size_t len,
             int64_t mtime);

/* Appends the end-of-archive marker. */
void tar_end(struct buf *out);

#endif
