/* SPDX-License-Identifier: Apache-2.0
 *
 * save: writes a file or a folder completely or not at all: under a temporary name beside it, which
 * is then renamed. Signals that end the program are blocked until that is done.
 */
#ifndef HVD_DIAGNOSTICS_CLI_SAVE_H
#define HVD_DIAGNOSTICS_CLI_SAVE_H

#include "core/base/buf.h"
#include "diagnostics/cli/capture.h"

/* Writes a file of mode 0600. An existing path that is not a regular file (/dev/full, a pipe) is
 * opened and written to. */
int save_file(const char *path, const struct buf *b, struct err *err);

/* Writes a folder. path must not exist, or be an empty folder. */
int save_folder(const char *path, const struct capture *c, struct err *err);

#endif
