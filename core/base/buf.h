/* SPDX-License-Identifier: Apache-2.0
 *
 * buf: a growing byte buffer, and a reader that never reads past the end of untrusted bytes.
 *
 * Integers are little-endian on the wire. A failed allocation sets buf.failed, so that a caller
 * writes a whole message and checks once. One thread at a time.
 */
#ifndef HVD_BASE_BUF_H
#define HVD_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    uint8_t *data;
    size_t len;
    size_t cap;
    bool failed; /* an allocation failed; data holds what was written before */
};

/* Releases the memory; the buffer is empty and usable again. NULL is fine. */
void buf_fini(struct buf *b);

/* Empties the buffer and keeps its memory. */
static inline void buf_reset(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

/* Makes room for n more bytes and returns their address, NULL when an allocation failed. The caller
 * adds to buf.len what it wrote. */
void *buf_reserve(struct buf *b, size_t n);

void buf_put(struct buf *b, const void *src, size_t n);
void buf_put_u8(struct buf *b, uint8_t v);
void buf_put_u16(struct buf *b, uint16_t v);
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);
void buf_put_f64(struct buf *b, double v);

/* A u16 length, then the bytes without a NUL. Cuts a string longer than 65535 bytes. */
void buf_put_str(struct buf *b, const char *s);

/* Drops the first n bytes (n <= len). */
void buf_consume(struct buf *b, size_t n);

/* A reader over bytes that the caller owns. After the first read past the end every read returns 0
 * and failed stays set: check once, after the last read. */
struct reader {
    const uint8_t *data;
    size_t len;
    size_t pos;
    bool failed;
};

static inline struct reader reader_over(const void *data, size_t len)
{
    return (struct reader){.data = data, .len = len};
}

uint8_t reader_u8(struct reader *r);
uint16_t reader_u16(struct reader *r);
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);
double reader_f64(struct reader *r);

/* Returns a pointer to the next n bytes, inside r->data; NULL past the end. */
const void *reader_bytes(struct reader *r, size_t n);

/* Copies a string of buf_put_str() into dst, NUL-terminated. Sets failed when the string contains a
 * NUL or does not fit. */
void reader_str(struct reader *r, char *dst, size_t dst_size);

/* True when no read failed and every byte was read. */
static inline bool reader_ok(const struct reader *r)
{
    return !r->failed && r->pos == r->len;
}

#endif
