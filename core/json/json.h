/* SPDX-License-Identifier: Apache-2.0
 *
 * json: how we use jansson: one json_expect() an object, its message goes into err.
 *
 * Programs only, never in libhvd. "what" names the text in messages ("the answer of /v1/join").
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

/* Parses one document of len bytes; -EINVAL with line and column, -ENOMEM. Caller's reference. */
int json_read(const char *text, size_t len, const char *what, json_t **ret, struct err *err);

/* json_unpack_ex() with jansson's message in err; -EINVAL, -ENOMEM. Borrowed values as there. */
int json_expect(json_t *j, const char *what, struct err *err, const char *fmt, ...);

/* The compact text of a document, free() it; NULL when memory is out or j is NULL. */
char *json_write(const json_t *j);

/* Appends to an array, sets a member of an object. item is taken. When memory is out, also when
 * item is NULL for that, *j becomes NULL and stays so: a text with a gap in it is never written. */
void json_append(json_t **j, json_t *item);
void json_put(json_t **j, const char *key, json_t *item);

/* A fresh JSON string of len bytes that need not be UTF-8: what is not becomes '?'. */
json_t *json_lossy_string(const char *bytes, size_t len);

/* The same of a whole text; NULL is "". */
json_t *json_lossy_text(const char *text);

/* Binary in base64 (RFC 4648): a fresh JSON string; and back into dst, -EINVAL with the field when
 * it is no base64 or does not fit. */
json_t *json_bytes(const void *bytes, size_t len);
int json_bytes_read(const char *text, const char *field, void *dst, size_t dst_size,
                    size_t *ret_len, struct err *err);

/* {"error": text}, free() it. */
char *json_error_body(const char *text);

#endif
