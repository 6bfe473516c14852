/* SPDX-License-Identifier: Apache-2.0
 *
 * labels: the labels of a node or a nodeSelector in one block of memory, since a cache holds
 * thousands of them. A struct labels owns its text.
 */
#ifndef HVD_OPERATOR_OBJECTS_LABELS_H
#define HVD_OPERATOR_OBJECTS_LABELS_H

#include <jansson.h>
#include <stdbool.h>

#include "core/base/err.h"

struct labels {
    char *text; /* name NUL value NUL ... NUL; NULL: none */
};

/* From {"name": "value"}; j NULL: no labels. -EINVAL: j is anything else. */
int labels_parse(json_t *j, struct labels *ret, struct err *err);
int labels_copy(const struct labels *l, struct labels *ret); /* -ENOMEM */
void labels_fini(struct labels *l);

/* The value; NULL: no such label. */
const char *labels_get(const struct labels *l, const char *name);

/* Does l have all labels of want, with the same values? *ret_missing: the name of the first label
 * that l lacks or has with another value, followed after its NUL by the wanted value. NULL: all
 * match. */
bool labels_match(const struct labels *l, const struct labels *want, const char **ret_missing);

#endif
