/* SPDX-License-Identifier: Apache-2.0
 *
 * tame: objects of the API server as JSON, also those that our parser does not take though the API
 * server does: whoever may write an annotation could else blind the operator for all objects of
 * that kind. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_TAME_H
#define HVD_OPERATOR_OBJECTS_TAME_H

#include <jansson.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define TAME_DEPTH 500

/* As json_read(), but the character U+0000 becomes U+FFFD, an integer of more than 18 digits a real
 * number, and what is nested deeper than TAME_DEPTH null. *ret_why: which of it was so, in words;
 * NULL: nothing. Of the program. -EINVAL: it is no JSON all the same; -ENOMEM. */
int tame_read(const char *text, size_t len, const char *what, json_t **ret, const char **ret_why,
              struct err *err);

/* The text with all that replaced. -ENOMEM. */
int tame(const char *text, size_t len, struct buf *dst, const char **ret_why);

/* Why an object was tamed, kept in it for whoever wants it to be as it was written; NULL: it is. */
int tame_mark(json_t *object, const char *why);
const char *tame_why(json_t *object);

#endif
