/* SPDX-License-Identifier: Apache-2.0
 *
 * output: where a report goes: standard output, whole, and what kind of terminal that is. One
 * thread.
 */
#ifndef HVD_DIAGNOSTICS_CLI_OUTPUT_H
#define HVD_DIAGNOSTICS_CLI_OUTPUT_H

#include "core/base/buf.h"
#include "diagnostics/cli/cli.h"
#include "diagnostics/report/text.h"

/* All of b to standard output. A reader that has gone is no error: nobody wants the rest. */
int output_write(const struct buf *b, struct err *err);

/* Colour and width of standard output as it is, and as the options and NO_COLOR want it. */
struct text_style output_style(const struct cli *cli);

#endif
