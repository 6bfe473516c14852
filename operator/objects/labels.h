/* SPDX-License-Identifier: Apache-2.0
 *
 * labels: names and values of a node or of a selector, in one block of memory: a cache holds
 * thousands of them. Whoever has a struct labels owns its text.
 */
#ifndef HVD_OPERATOR_OBJECTS_LABELS_H
#define HVD_OPERATOR_OBJECTS_LABELS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/err.h"

struct labels {
    char *text; /* name NUL value NUL ... NUL; NULL: none */
};

/* From {"name": "value"}; NULL is none. -EINVAL: something else. */
int labels_parse(json_t *j, struct labels *ret, struct err *err);
void labels_fini(struct labels *l);

/* The value, NULL: no such name. */
const char *labels_get(const struct labels *l, const char *name);

/* Has l all that want has? *ret_missing: the first name that it does not have so, NULL if it does;
 * its value lies behind its NUL. */
bool labels_match(const struct labels *l, const struct labels *want, const char **ret_missing);

#endif
