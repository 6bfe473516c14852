/* SPDX-License-Identifier: Apache-2.0
 *
 * report: a whole report in the format that the command line asks for. For check and workers; one
 * thread.
 */
#ifndef HVD_DIAGNOSTICS_CLI_REPORT_H
#define HVD_DIAGNOSTICS_CLI_REPORT_H

#include "diagnostics/cli/session.h"

/* Runs the session's checks and writes the report. Returns the exit code. */
int report_whole(const struct cli *cli, struct session *s, struct err *err);

#endif
