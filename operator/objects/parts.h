/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: finds or creates mappings and lists inside a JSON object. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_PARTS_H
#define HVD_OPERATOR_OBJECTS_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The first mapping in the list whose field has this text. Borrowed; NULL: none. */
json_t *parts_find(json_t *list, const char *field, const char *text);

/* The ownerReference with controller: true in this metadata; NULL: none. Borrowed. */
json_t *parts_owner(json_t *meta);
/* Its uid; "": none. Borrowed. */
const char *parts_controller(json_t *meta);

/* The text under key; "" if it is missing or no string. Borrowed. */
const char *parts_text(json_t *j, const char *key);

/* Copies parts_text(), cut to fit. */
void parts_copy(json_t *j, const char *key, char *dst, size_t size);

/* The mapping or list under key; creates it if there is none. Borrowed; NULL: no memory. */
json_t *parts_map(json_t *j, const char *key);
json_t *parts_list(json_t *j, const char *key);

/* Sets key to value if the object does not have that key, or has null there. Takes the reference to
 * value in any case. False: no memory. */
bool parts_fill(json_t *j, const char *key, json_t *value);

#endif
