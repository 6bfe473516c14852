/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: see buf.h.
 */
#include "core/base/buf.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

void buf_fini(struct buf *b)
{
    if (!b)
        return;
    free(b->data);
    *b = (struct buf){0};
}

void *buf_reserve(struct buf *b, size_t n)
{
    if (b->failed)
        return NULL;
    if (n > SIZE_MAX / 2 - b->len) {
        b->failed = true;
        return NULL;
    }
    size_t need = b->len + n;
    if (need > b->cap || !b->data) {
        size_t cap = b->cap ? b->cap : 64;
        while (cap < need)
            cap *= 2;
        uint8_t *data = realloc(b->data, cap);
        if (!data) {
            b->failed = true;
            return NULL;
        }
        b->data = data;
        b->cap = cap;
    }
    return b->data + b->len;
}

void buf_put(struct buf *b, const void *src, size_t n)
{
    void *dst = buf_reserve(b, n);
    if (!dst || n == 0)
        return;
    memcpy(dst, src, n);
    b->len += n;
}

void buf_put_u8(struct buf *b, uint8_t v)
{
    buf_put(b, &v, 1);
}

void buf_put_u16(struct buf *b, uint16_t v)
{
    v = htole16(v);
    buf_put(b, &v, sizeof(v));
}

void buf_put_u32(struct buf *b, uint32_t v)
{
    v = htole32(v);
    buf_put(b, &v, sizeof(v));
}

void buf_put_u64(struct buf *b, uint64_t v)
{
    v = htole64(v);
    buf_put(b, &v, sizeof(v));
}

void buf_put_f64(struct buf *b, double v)
{
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    buf_put_u64(b, bits);
}

void buf_put_str(struct buf *b, const char *s)
{
    size_t n = strlen(s);
    if (n > UINT16_MAX)
        n = UINT16_MAX;
    buf_put_u16(b, (uint16_t)n);
    buf_put(b, s, n);
}

void buf_consume(struct buf *b, size_t n)
{
    b->len -= n;
    if (b->len)
        memmove(b->data, b->data + n, b->len);
}

const void *reader_bytes(struct reader *r, size_t n)
{
    if (r->failed || n > r->len - r->pos) {
        r->failed = true;
        return NULL;
    }
    const void *p = r->data + r->pos;
    r->pos += n;
    return p;
}

static uint64_t read_le(struct reader *r, size_t n)
{
    const uint8_t *p = reader_bytes(r, n);
    uint64_t v = 0;
    for (size_t i = 0; p && i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t reader_u8(struct reader *r)
{
    return (uint8_t)read_le(r, 1);
}

uint16_t reader_u16(struct reader *r)
{
    return (uint16_t)read_le(r, 2);
}

uint32_t reader_u32(struct reader *r)
{
    return (uint32_t)read_le(r, 4);
}

uint64_t reader_u64(struct reader *r)
{
    return read_le(r, 8);
}

double reader_f64(struct reader *r)
{
    uint64_t bits = reader_u64(r);
    double v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

void reader_str(struct reader *r, char *dst, size_t dst_size)
{
    size_t n = reader_u16(r);
    const char *p = reader_bytes(r, n);
    if (dst_size)
        dst[0] = '\0';
    if (!p)
        return;
    if (n >= dst_size || memchr(p, '\0', n)) {
        r->failed = true;
        return;
    }
    memcpy(dst, p, n);
    dst[n] = '\0';
}
