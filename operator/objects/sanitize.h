/* SPDX-License-Identifier: Apache-2.0
 *
 * sanitize: parses JSON from the API server, and replaces in it what the API server accepts and
 * jansson does not. Otherwise anybody who may write one annotation could stop the operator from
 * reading all objects of that kind. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_SANITIZE_H
#define HVD_OPERATOR_OBJECTS_SANITIZE_H

#include <jansson.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define SANITIZE_DEPTH 500

/* As json_read(), but replaces the character U+0000 by U+FFFD, an integer of more than 18 digits by
 * a real number, and values nested deeper than SANITIZE_DEPTH by null. *ret_why: what was replaced,
 * for people, a string constant; NULL: nothing. -EINVAL: still not JSON. -ENOMEM. */
int sanitize_read(const char *text, size_t len, const char *what, json_t **ret,
                  const char **ret_why, struct err *err);

/* Appends the text to dst with the replacements of sanitize_read(). -ENOMEM. */
int sanitize(const char *text, size_t len, struct buf *dst, const char **ret_why);

/* sanitize_mark() marks an object with what was replaced in it; -ENOMEM. sanitize_reason() returns
 * the mark. NULL in both: nothing was replaced. The mark exists only in memory. */
int sanitize_mark(json_t *object, const char *why);
const char *sanitize_reason(json_t *object);

#endif
