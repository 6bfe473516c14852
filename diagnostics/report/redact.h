/* SPDX-License-Identifier: Apache-2.0
 *
 * redact: takes secrets out of text before anybody else sees it.
 *
 * Every output of the doctor goes through it: report, bundle, captured machine. A secret is
 *  - the value of a variable whose name holds TOKEN, SECRET, PASSWORD, PASSWD, PASSPHRASE, KEY or
 *    CREDENTIAL, or ends with PASS, _PWD, _AUTH or COOKIE, unless the name says that it is a path
 * (..._FILE, ..._PATH, ..._DIR), wherever the value (6 bytes or more) stands in the text, also
 * escaped for JSON, XML or an answer, or cut off;
 *  - the value in NAME=value with such a name, anywhere in a text;
 *  - the password in scheme://user:password@host;
 *  - what has the form of an AWS access key, a bearer token, a JWT or a token with a known prefix.
 * Const after creation; any thread.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_REDACT_H
#define HVD_DIAGNOSTICS_REPORT_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"
#include "diagnostics/machine.h"

#define REDACTED "<redacted>"

struct redact;

/* Knows the environment of m; NULL: forms only. 0 or -ENOMEM. */
int redact_create(struct redact **ret, const struct machine *m);
void redact_destroy(struct redact *r);

/* The name (len bytes) is one of a secret. */
bool redact_is_secret_name(const char *name, size_t len);

/* Appends len bytes of text without its secrets. NULs are bytes like others. */
void redact_text(const struct redact *r, const char *text, size_t len, struct buf *out);

/* The same for what a buffer holds from offset on. Out of memory: the rest is dropped, and
 * b->failed is set. */
void redact_buf(const struct redact *r, struct buf *b, size_t offset);

#endif
