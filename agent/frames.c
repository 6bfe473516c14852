/* SPDX-License-Identifier: Apache-2.0
 *
 * frames: see frames.h.
 */
#include "agent/frames.h"

#include <errno.h>

const char *frame_stream_name(enum frame_stream stream)
{
    return stream == FRAME_STDOUT ? "stdout" : "stderr";
}

void frame_put(struct buf *dst, uint32_t rank, enum frame_stream stream, const void *data, size_t n)
{
    buf_put_u32(dst, FRAME_MAGIC);
    buf_put_u32(dst, rank);
    buf_put_u16(dst, (uint16_t)stream);
    buf_put_u16(dst, (uint16_t)n);
    buf_put(dst, data, n);
}

long frame_get(const uint8_t *data, size_t n, struct frame *ret)
{
    struct reader r = reader_over(data, n);
    uint32_t magic = reader_u32(&r), rank = reader_u32(&r);
    uint16_t stream = reader_u16(&r), len = reader_u16(&r);
    if (n >= 4 && (magic != FRAME_MAGIC))
        return -EPROTO;
    if (r.failed)
        return 0;
    if (stream >= FRAME_STREAMS)
        return -EPROTO;
    const uint8_t *bytes = reader_bytes(&r, len);
    if (!bytes && len > 0)
        return 0;
    *ret = (struct frame){rank, (enum frame_stream)stream, bytes, len};
    return FRAME_HEAD + (long)len;
}
