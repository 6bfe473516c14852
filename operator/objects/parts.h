/* SPDX-License-Identifier: Apache-2.0
 *
 * parts: maps and lists inside an object: looked for, or made. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_PARTS_H
#define HVD_OPERATOR_OBJECTS_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* The first of a list's maps whose field is this text. Borrowed; NULL: none has it. */
json_t *parts_find(json_t *list, const char *field, const char *text);

/* The uid of the controller that owns the object whose metadata this is, "": none. Borrowed. */
const char *parts_controller(json_t *meta);

/* The text under key, "": none, or no text. Borrowed. */
const char *parts_text(json_t *j, const char *key);

/* Copies parts_text(); what does not fit is cut. */
void parts_copy(json_t *j, const char *key, char *dst, size_t size);

/* Under key, made where there is none. Borrowed; NULL: no memory. */
json_t *parts_map(json_t *j, const char *key);
json_t *parts_list(json_t *j, const char *key);

/* Under key if there is nothing; the reference to value is taken in any case. False: no memory. */
bool parts_fill(json_t *j, const char *key, json_t *value);

#endif
