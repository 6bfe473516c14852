/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8: UTF-8 texts. Any thread, async-signal-safe.
 */
#ifndef HVD_BASE_UTF8_H
#define HVD_BASE_UTF8_H

#include <stdbool.h>

/* Whether the byte is inside a character: not its first byte. A text may be cut before any other
 * byte. */
static inline bool utf8_inside(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

#endif
