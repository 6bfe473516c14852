/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: maps and lists inside an object that is being made. NULL and false: no memory.
 */
#ifndef HVD_OPERATOR_RECONCILE_PARTS_H
#define HVD_OPERATOR_RECONCILE_PARTS_H

#include <jansson.h>
#include <stdbool.h>

/* Under key, made where there is none. Borrowed. */
json_t *parts_map(json_t *j, const char *key);
json_t *parts_list(json_t *j, const char *key);

/* Under key if there is nothing; the reference to value is taken in any case. */
bool parts_fill(json_t *j, const char *key, json_t *value);

#endif
