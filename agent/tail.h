/* SPDX-License-Identifier: Apache-2.0
 *
 * tail: the last bytes of a stream, for messages that quote its last lines. Owned by one rank; one
 * thread.
 */
#ifndef HVD_AGENT_TAIL_H
#define HVD_AGENT_TAIL_H

#include <stddef.h>

#define TAIL_SIZE 2048

struct tail {
    size_t end; /* bytes put so far */
    char ring[TAIL_SIZE];
};

void tail_put(struct tail *t, const char *data, size_t n);

/* Writes the last whole lines, at most max_lines, as a C string into dst (TAIL_SIZE + 1 bytes are
 * enough). */
void tail_text(const struct tail *t, int max_lines, char *dst, size_t size);

#endif
