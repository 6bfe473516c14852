/* SPDX-License-Identifier: Apache-2.0
 *
 * logs: files, folders and standard input for the matcher. A folder stands for all files in it
 * (hvdrun --output-filename makes DIR/rank.N/stderr). Memory does not grow with the logs. If
 * standard error is a terminal, progress is shown there.
 */
#ifndef HVD_DIAGNOSTICS_CLI_LOGS_H
#define HVD_DIAGNOSTICS_CLI_LOGS_H

#include "core/base/buf.h"
#include "diagnostics/cli/cli.h"
#include "diagnostics/match.h"

/* Reads every file into the matcher match, each file as one source. The path "-" is standard input.
 * Stops at the first file that cannot be read. */
int logs_read(const struct cli_words *paths, struct match *match, struct err *err);

/* Appends the result in the form of match_print(). */
void logs_print(const struct match_result *result, struct buf *out);

#endif
