/* SPDX-License-Identifier: Apache-2.0
 *
 * object: reads an API object that came as JSON, or a text round one, without its
 * metadata.managedFields: half of the text of a pod, three quarters of the small objects that it
 * would be read into, and of no use to us. Pure.
 */
#ifndef HVD_OPERATOR_API_OBJECT_H
#define HVD_OPERATOR_API_OBJECT_H

#include <stddef.h>

#include "core/json/json.h"
#include "operator/objects/sanitize.h"

/* As sanitize_read(). Of members of that name that are lists only the brackets are looked at. */
int object_read(const char *text, size_t len, const char *what, json_t **ret, const char **ret_why,
                struct err *err);

/* text without them into dst, which has room for len bytes; how many it has then. For tests. */
size_t object_prune(const char *text, size_t len, char *dst);

#endif
