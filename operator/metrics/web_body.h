/* SPDX-License-Identifier: Apache-2.0
 *
 * web_body: the bytes of an answer, counted, so that many clients can be sent the same ones. One
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
    char etag[WEB_ETAG_MAX]; /* of its bytes, with its quotes */
    size_t *alive;           /* bytes of bodies that are there: the owner's sum; NULL: no one's */
    void *owned;
};

/* Takes the bytes of text, also on failure. NULL: no memory, also when text.failed. */
struct web_body *web_body_take(struct buf *text, size_t *alive);

/* Of bytes that stay for ever. */
struct web_body *web_body_over(const void *data, size_t len);

struct web_body *web_body_ref(struct web_body *body);

/* NULL is fine. */
void web_body_unref(struct web_body *body);

#endif
