/* SPDX-License-Identifier: Apache-2.0
 *
 * web_body: the body of a response, reference-counted, so that many clients share one copy. One
 * thread.
 */
#ifndef HVD_OPERATOR_METRICS_WEB_BODY_H
#define HVD_OPERATOR_METRICS_WEB_BODY_H

#include "core/base/buf.h"

#define WEB_ETAG_MAX 24

struct web_body {
    int refs;
    const void *data;
    size_t len;
    char etag[WEB_ETAG_MAX]; /* with its quotes */
    size_t *alive;           /* the owner's sum of bytes of all bodies in memory, or NULL */
    void *owned;
};

/* Takes the bytes of text, also on failure. NULL: no memory, or text.failed. */
struct web_body *web_body_take(struct buf *text, size_t *alive);

/* A body over static data, which is not copied. NULL: no memory. */
struct web_body *web_body_over(const void *data, size_t len);

struct web_body *web_body_ref(struct web_body *body);

/* NULL is fine. */
void web_body_unref(struct web_body *body);

#endif
