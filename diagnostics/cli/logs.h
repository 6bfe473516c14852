/* SPDX-License-Identifier: Apache-2.0
 *
 * logs: files, folders and standard input for the matcher. A folder is all files in it (hvdrun
 * --output-filename makes DIR/rank.N/stderr). Memory does not grow with the logs. On a terminal
 * standard error says how far it is.
 */
#ifndef HVD_DIAGNOSTICS_CLI_LOGS_H
#define HVD_DIAGNOSTICS_CLI_LOGS_H

#include "core/base/buf.h"
#include "diagnostics/cli/cli.h"
#include "diagnostics/match.h"

/* Feeds all of them, a source each; "-" is standard input. Ends at the first that cannot be read.
 */
int logs_read(const struct cli_words *paths, struct match *match, struct err *err);

/* The result as match_print() writes it. */
void logs_print(const struct match_result *result, struct buf *out);

#endif
