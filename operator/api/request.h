/* SPDX-License-Identifier: Apache-2.0
 *
 * request: paths and queries of the API. Pure. Called by informer.c, election.c and
 * callers that make requests.
 */
#ifndef HVD_OPERATOR_API_REQUEST_H
#define HVD_OPERATOR_API_REQUEST_H

#include "core/base/buf.h"

/* {"", "v1", "pods"}, {"hvd.dev", "v1alpha1", "hvdjobs"} */
struct resource {
    const char *group, *version, *plural;
};

/* The path of a collection or, with a name, of an object; with sub of its subresource. namespace:
 * NULL or "": all of them, or none. Every part is encoded. buf.failed when memory is out. */
void request_path(struct buf *dst, const struct resource *r, const char *namespace,
                  const char *name, const char *sub);

/* "?key=value" or "&key=value", the value encoded; nothing when it is NULL or "". */
void request_query(struct buf *dst, const char *key, const char *value);
void request_query_number(struct buf *dst, const char *key, long value);

/* Ends it and returns the text inside dst; NULL when memory is out. */
const char *request_text(struct buf *dst);

#endif
