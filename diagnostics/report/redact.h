/* SPDX-License-Identifier: Apache-2.0
 *
 * redact: removes secrets from text before it leaves the doctor.
 *
 * Every output of the doctor goes through it: results, before they are written in any format;
 * bundle, captured machine. A secret is
 *  - the value of a variable whose name holds TOKEN, SECRET, PASSWORD, PASSWD, PASSPHRASE, KEY or
 *    CREDENTIAL, or ends with PASS, _PWD, _AUTH or COOKIE, unless the name says that it is a path
 *    (..._FILE, ..._PATH, ..._DIR), wherever the value (6 bytes or more) stands in the text, also
 *    escaped (JSON, C, XML, a URL), or cut off;
 *  - the value in NAME=value and "NAME": "value" with such a name, anywhere in a text;
 *  - the password in scheme://user:password@host;
 *  - what has the form of an AWS access key, a bearer token, a JWT or a token with a known prefix.
 * Const after creation; any thread.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_REDACT_H
#define HVD_DIAGNOSTICS_REPORT_REDACT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buf.h"
#include "core/json/json.h"
#include "diagnostics/machine.h"

#define REDACTED "<redacted>"

struct redact;

/* Collects the secrets of m's environment; m NULL: only secrets with a known form are found. 0
 * or -ENOMEM. */
int redact_create(struct redact **ret, const struct machine *m);
void redact_destroy(struct redact *r);

/* Returns whether a variable's name (len bytes) marks its value as a secret. */
bool redact_is_secret_name(const char *name, size_t len);

/* Appends text (len bytes, NULs allowed) without its secrets. Escapes and characters are
 * replaced as a whole. Still, text in a format (JSON, XML) may become invalid, because a secret
 * may contain a quote: redact before formatting, or use redact_json(). */
void redact_text(const struct redact *r, const char *text, size_t len, struct buf *out);

/* Redacts what a buffer holds from offset on. No memory: the rest is dropped, and b->failed is
 * set. */
void redact_buf(const struct redact *r, struct buf *b, size_t offset);

/* Redacts a string of at most size bytes in place; what does not fit is cut. No memory: the
 * string becomes empty. */
void redact_string(const struct redact *r, char *text, size_t size);

/* Returns a copy of j with secrets removed from its strings and names, and without the strings
 * whose names mark them as secrets. The caller owns it; NULL: no memory. */
json_t *redact_json(const struct redact *r, const json_t *j);

#endif
