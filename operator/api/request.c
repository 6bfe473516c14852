/* SPDX-License-Identifier: Apache-2.0
 *
 * request: see request.h.
 */
#include "operator/api/request.h"

#include <stdio.h>
#include <string.h>

static void put_text(struct buf *dst, const char *text)
{
    buf_put(dst, text, strlen(text));
}

/* Encodes all characters but the unreserved ones of RFC 3986 as %XX. */
static void put_encoded(struct buf *dst, const char *text)
{
    static const char hex[] = "0123456789ABCDEF";
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c);
        if (plain)
            buf_put_u8(dst, c);
        else
            buf_put(dst, (char[]){'%', hex[c >> 4], hex[c & 15]}, 3);
    }
}

static void put_part(struct buf *dst, const char *part)
{
    buf_put_u8(dst, '/');
    put_encoded(dst, part);
}

void request_path(struct buf *dst, const struct resource *r, const char *namespace,
                  const char *name, const char *sub)
{
    put_text(dst, r->group[0] ? "/apis" : "/api");
    if (r->group[0])
        put_part(dst, r->group);
    put_part(dst, r->version);
    if (namespace && *namespace) {
        put_part(dst, "namespaces");
        put_part(dst, namespace);
    }
    put_part(dst, r->plural);
    if (name)
        put_part(dst, name);
    if (sub)
        put_part(dst, sub);
}

void request_query(struct buf *dst, const char *key, const char *value)
{
    if (!value || !*value || dst->failed)
        return;
    buf_put_u8(dst, memchr(dst->data, '?', dst->len) ? '&' : '?');
    put_text(dst, key);
    buf_put_u8(dst, '=');
    put_encoded(dst, value);
}

void request_query_number(struct buf *dst, const char *key, long value)
{
    char text[24];
    snprintf(text, sizeof(text), "%ld", value);
    request_query(dst, key, text);
}

const char *request_text(struct buf *dst)
{
    buf_put_u8(dst, 0);
    return dst->failed ? NULL : (const char *)dst->data;
}
