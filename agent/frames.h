/* SPDX-License-Identifier: Apache-2.0
 *
 * frames: the format of ranks' output in the pipe from an agent's standard output to hvdrun.
 *
 * A frame is {u32 magic, u32 rank, u16 stream, u16 length}, little endian, then the bytes. The
 * magic detects other output in the pipe, such as that of a login shell.
 */
#ifndef HVD_AGENT_FRAMES_H
#define HVD_AGENT_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"

#define FRAME_MAGIC 0x4f445648u /* "HVDO" */
#define FRAME_HEAD  12
#define FRAME_MAX   65535

enum frame_stream { FRAME_STDOUT, FRAME_STDERR, FRAME_STREAMS };

struct frame {
    uint32_t rank;
    enum frame_stream stream;
    const uint8_t *data; /* inside the caller's buffer */
    size_t len;
};

/* The name of a stream: "stdout", "stderr". */
const char *frame_stream_name(enum frame_stream stream);

/* Appends a frame of n <= FRAME_MAX bytes to dst. */
void frame_put(struct buf *dst, uint32_t rank, enum frame_stream stream, const void *data,
               size_t n);

/* Parses the frame at the start of [data, n). Returns its whole length, 0 if more bytes are needed,
 * -EPROTO if it is not a frame. */
long frame_get(const uint8_t *data, size_t n, struct frame *ret);

#endif
