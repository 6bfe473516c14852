/* SPDX-License-Identifier: Apache-2.0
 *
 * output: writes a report to standard output, and finds out what kind of terminal that is. One
 * thread.
 */
#ifndef HVD_DIAGNOSTICS_CLI_OUTPUT_H
#define HVD_DIAGNOSTICS_CLI_OUTPUT_H

#include "core/base/buf.h"
#include "diagnostics/cli/cli.h"
#include "diagnostics/report/text.h"

/* Writes all of b to standard output. A closed pipe (EPIPE) is not an error: the reader does not
 * want the rest. */
int output_write(const struct buf *b, struct err *err);

/* Colour and width for standard output, from the terminal, the options and NO_COLOR. */
struct text_style output_style(const struct cli *cli);

#endif
