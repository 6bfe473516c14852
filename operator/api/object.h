/* SPDX-License-Identifier: Apache-2.0
 *
 * object: parses the JSON of an API object, or of an event that contains one, without
 * metadata.managedFields. These are half of a pod's text and three quarters of jansson's
 * allocations for it, and the operator does not use them. Pure.
 */
#ifndef HVD_OPERATOR_API_OBJECT_H
#define HVD_OPERATOR_API_OBJECT_H

#include <stddef.h>

#include "core/json/json.h"
#include "operator/objects/sanitize.h"

/* As sanitize_read(), without the contents of members called managedFields. */
int object_read(const char *text, size_t len, const char *what, json_t **ret, const char **ret_why,
                struct err *err);

/* Copies text without managedFields to dst, which has room for len bytes; returns the new length.
 * For tests. */
size_t object_prune(const char *text, size_t len, char *dst);

#endif
