/* SPDX-License-Identifier: Apache-2.0
 *
 * gaps: when is an agent that says nothing gone? Judged by how it used to speak: after four
 * times the longest of its last gaps (of about a thousand: the 99.9th percentile), and 300 ms at
 * least. Pure; one owner, one thread.
 */
#ifndef HVD_MEMBER_GAPS_H
#define HVD_MEMBER_GAPS_H

#include <stdint.h>

#define GAPS_LEAST_MS 300
#define GAPS_WINDOW   500 /* gaps; the present window and the one before it count */

struct gaps {
    uint64_t heard;      /* clock of the last word, 0: none yet */
    uint64_t longest[2]; /* gap of this window, and of the one before, ns */
    int n;               /* gaps in this window */
};

void gaps_heard(struct gaps *s, uint64_t now);

/* The listener itself was not there: this gap says nothing. */
void gaps_forgive(struct gaps *s, uint64_t now);

/* Nanoseconds without a word after which it is gone. UINT64_MAX: not enough is known yet. */
uint64_t gaps_limit(const struct gaps *s);

#endif
