/* SPDX-License-Identifier: Apache-2.0
 *
 * tail: see tail.h.
 */
#include "agent/tail.h"

#include <string.h>

void tail_put(struct tail *t, const char *data, size_t n)
{
    if (n > TAIL_SIZE) {
        t->end += n - TAIL_SIZE;
        data += n - TAIL_SIZE;
        n = TAIL_SIZE;
    }
    size_t at = t->end % TAIL_SIZE, first = TAIL_SIZE - at < n ? TAIL_SIZE - at : n;
    memcpy(t->ring + at, data, first);
    memcpy(t->ring, data + first, n - first);
    t->end += n;
}

void tail_text(const struct tail *t, int max_lines, char *dst, size_t size)
{
    size_t held = t->end < TAIL_SIZE ? t->end : TAIL_SIZE;
    size_t n = held < size - 1 ? held : size - 1;
    size_t from = t->end - n;
    for (size_t i = 0; i < n; i++) {
        char c = t->ring[(from + i) % TAIL_SIZE];
        dst[i] = c ? c : '?';
    }
    while (n > 0 && dst[n - 1] == '\n')
        n--;
    dst[n] = '\0';
    size_t start = n;
    int lines = 0;
    while (start > 0) {
        if (dst[start - 1] == '\n' && ++lines == max_lines)
            break;
        start--;
    }
    /* Drops the oldest line if its beginning was overwritten. */
    if (start == 0 && from > 0) {
        char *newline = strchr(dst, '\n');
        if (newline)
            start = (size_t)(newline + 1 - dst);
    }
    memmove(dst, dst + start, n - start + 1);
}
