/* SPDX-License-Identifier: Apache-2.0
 *
 * json: jansson as hvd uses it: one json_expect() for each object, with jansson's message in err.
 *
 * For programs only, never in libhvd. "what" names the text in messages ("the answer of /v1/join").
 */
#ifndef HVD_JSON_JSON_H
#define HVD_JSON_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "core/base/cleanup.h"
#include "core/base/err.h"

static inline void cleanup_json(json_t **j)
{
    json_decref(*j);
}

/* auto_json json_t *j = NULL; drops its reference at the end of the scope. */
#define auto_json CLEANUP(cleanup_json)

/* Parses a document of len bytes. *ret is a reference that the caller owns. -EINVAL with line and
 * column in err, -ENOMEM. */
int json_read(const char *text, size_t len, const char *what, json_t **ret, struct err *err);

/* json_unpack_ex() with jansson's message in err. Unpacked values are borrowed, as there. -EINVAL,
 * -ENOMEM. */
int json_expect(json_t *j, const char *what, struct err *err, const char *fmt, ...);

/* The compact text of a document, which the caller frees; NULL when j is NULL or an allocation
 * failed. */
char *json_write(const json_t *j);

/* Appends to an array, or sets a member of an object. Takes the reference to item. After a failed
 * allocation, also one that made item NULL, *j becomes NULL and stays NULL: a text with a gap is
 * never written. */
void json_append(json_t **j, json_t *item);
void json_put(json_t **j, const char *key, json_t *item);

/* A new JSON string of len bytes, which need not be UTF-8: if they are not, each byte above 127
 * becomes '?'. */
json_t *json_lossy_string(const char *bytes, size_t len);

/* json_lossy_string() for a NUL-terminated text; NULL counts as "". */
json_t *json_lossy_text(const char *text);

/* json_bytes() encodes bytes in base64 (RFC 4648) as a new JSON string. json_bytes_read() decodes
 * into dst; -EINVAL, which names the field, when the text is not base64 or does not fit. */
json_t *json_bytes(const void *bytes, size_t len);
int json_bytes_read(const char *text, const char *field, void *dst, size_t dst_size,
                    size_t *ret_len, struct err *err);

/* The text {"error": text}, which the caller frees. */
char *json_error_body(const char *text);

#endif
