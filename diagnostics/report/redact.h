/* SPDX-License-Identifier: Apache-2.0
 *
 * redact: takes secrets out of text before anybody else sees it.
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

/* Knows the environment of m; NULL: forms only. 0 or -ENOMEM. */
int redact_create(struct redact **ret, const struct machine *m);
void redact_destroy(struct redact *r);

/* The name (len bytes) is one of a secret. */
bool redact_is_secret_name(const char *name, size_t len);

/* Appends len bytes of text without its secrets. NULs are bytes like others. Escapes and characters
 * go as a whole; but a text in a format (JSON, XML) may be none any more: a secret may hold a
 * quote. So take secrets out first and then write the format, or use redact_json(). */
void redact_text(const struct redact *r, const char *text, size_t len, struct buf *out);

/* The same for what a buffer holds from offset on. Out of memory: the rest is dropped, and
 * b->failed is set. */
void redact_buf(const struct redact *r, struct buf *b, size_t offset);

/* The same in place for a string in size bytes; what has no room is cut off. Out of memory: empty.
 */
void redact_string(const struct redact *r, char *text, size_t size);

/* A fresh copy of j without secrets in its strings and names, and without the strings that are
 * named like secrets. NULL when memory is out. */
json_t *redact_json(const struct redact *r, const json_t *j);

#endif
