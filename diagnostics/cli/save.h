/* SPDX-License-Identifier: Apache-2.0
 *
 * save: writes a file or a folder whole or not at all: under another name beside it, then renamed.
 * Signals that end the program wait until that is done.
 */
#ifndef HVD_DIAGNOSTICS_CLI_SAVE_H
#define HVD_DIAGNOSTICS_CLI_SAVE_H

#include "core/base/buf.h"
#include "diagnostics/cli/capture.h"

/* A file of mode 0600. What is there and is no regular file (/dev/full, a pipe) is written to. */
int save_file(const char *path, const struct buf *b, struct err *err);

/* The folder must not be there, or be empty. */
int save_folder(const char *path, const struct capture *c, struct err *err);

#endif
