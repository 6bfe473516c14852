/* SPDX-License-Identifier: Apache-2.0
 *
 * request: builds paths and queries of the Kubernetes API. Pure. Called wherever requests are made.
 */
#ifndef HVD_OPERATOR_API_REQUEST_H
#define HVD_OPERATOR_API_REQUEST_H

#include "core/base/buf.h"

/* {"", "v1", "pods"}, {"hvd.dev", "v1alpha1", "hvdjobs"} */
struct resource {
    const char *group, *version, *plural;
};

/* Appends the path of a collection, of an object (name), or of its subresource (sub). namespace
 * NULL or "": all namespaces, or a cluster-wide kind. All parts are URL-encoded. No memory:
 * dst->failed. */
void request_path(struct buf *dst, const struct resource *r, const char *namespace,
                  const char *name, const char *sub);

/* Appends "?key=value" or "&key=value", URL-encoded; nothing if value is NULL or "". */
void request_query(struct buf *dst, const char *key, const char *value);
void request_query_number(struct buf *dst, const char *key, long value);

/* Terminates the text and returns it; it is owned by dst. NULL: no memory. */
const char *request_text(struct buf *dst);

#endif
