/* SPDX-License-Identifier: Apache-2.0
 *
 * session: what every command that runs checks needs: the machine, the rules, the setting, the
 * chosen checks, and the redaction of secrets in its output. Made from the command line, used by
 * one command, one thread.
 */
#ifndef HVD_DIAGNOSTICS_CLI_SESSION_H
#define HVD_DIAGNOSTICS_CLI_SESSION_H

#include <stdint.h>

#include "core/base/buf.h"
#include "diagnostics/cli/cli.h"
#include "diagnostics/report/json.h"
#include "diagnostics/report/redact.h"
#include "diagnostics/rules.h"

struct session {
    struct machine machine;
    struct rules *own_rules;   /* --rules; NULL: the built-in ones */
    const struct rules *rules; /* the rules in force */
    struct setting setting;
    struct choice choice;
    struct redact *redact;
    char host[256];
    char *options; /* text of the captured machine's options; owned */
};

/* Opens the machine and fills s. Call session_close() whatever is returned. */
int session_open(struct session *s, const struct cli *cli, struct err *err);
void session_close(struct session *s);

/* Runs doctor_run() for this session. Secrets in the results are already redacted
 * (report/redact.h) when cb and the caller see them. */
int session_run(struct session *s, doctor_result_f *cb, void *arg, struct report *ret,
                struct err *err);

/* This host and the current time. The string belongs to the session. */
struct json_origin session_origin(const struct session *s);

#endif
