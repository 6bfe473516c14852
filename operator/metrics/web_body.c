/* SPDX-License-Identifier: Apache-2.0
 *
 * web_body: see web_body.h.
 */
#include "operator/metrics/web_body.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* FNV-1a. The ETag only has to differ between versions; forging one gains nothing. */
static uint64_t sum_of(const uint8_t *data, size_t len)
{
    uint64_t sum = 14695981039346656037ULL;
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ data[i]) * 1099511628211ULL;
    return sum;
}

struct web_body *web_body_over(const void *data, size_t len)
{
    struct web_body *body = calloc(1, sizeof(*body));
    if (!body)
        return NULL;
    body->refs = 1;
    body->data = data;
    body->len = len;
    snprintf(body->etag, sizeof(body->etag), "\"%016" PRIx64 "\"", sum_of(data, len));
    return body;
}

struct web_body *web_body_take(struct buf *text, size_t *alive)
{
    struct web_body *body = text->failed ? NULL : web_body_over(text->data, text->len);
    if (!body) {
        buf_fini(text);
        return NULL;
    }
    body->owned = text->data;
    body->alive = alive;
    if (alive)
        *alive += body->len;
    *text = (struct buf){0};
    return body;
}

struct web_body *web_body_ref(struct web_body *body)
{
    body->refs++;
    return body;
}

void web_body_unref(struct web_body *body)
{
    if (!body || --body->refs > 0)
        return;
    if (body->alive)
        *body->alive -= body->len;
    free(body->owned);
    free(body);
}
