/* SPDX-License-Identifier: Apache-2.0
 *
 * match_state: what match.c (bytes to lines to hits) and match_rank.c (hits to findings) share; for
 * nobody else.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_STATE_H
#define HVD_DIAGNOSTICS_MATCH_STATE_H

#include "diagnostics/match.h"
#include "diagnostics/match_line.h"

#define MATCH_CARRY 8192 /* of a line that is not there as a whole yet */

/* A pattern in a source: its first line, and how often since. */
struct match_hit {
    struct match_hit *next;
    size_t pattern;
    struct match_finding found; /* pattern and say are set by match_rank */
    char got[96];               /* what stands for $1 or $0 */
    uint64_t last_line;
    int last_rank;
};

struct match_source {
    struct match_source *next;
    struct match *m;
    char *name;
    int rank;
    uint64_t line;   /* number of the line that comes next, from 1 */
    uint64_t offset; /* where the bytes that come next stand */
    struct match_hit *hits;
    uint8_t *carry; /* of the line that is not finished; NULL: none yet */
    size_t carry_len;
    uint64_t carry_offset; /* of the line's first byte */
    bool in_long;          /* the head of this line went by, meta is its */
    struct match_meta meta;
    struct match_hit *following; /* whose detail the next lines are */
    int follow_rank;             /* that the line itself told; -1: all lines */
    int follow_left, follow_seen;
    const struct pattern *ignoring; /* its "of" does not count, same rank, until ignore_until */
    uint64_t ignore_until;
    int ignore_rank;
};

struct match {
    struct patterns *patterns;
    bool own_patterns;
    char *as_cause, *as_noise;
    bool failed;
    bool no_memory;
    size_t words; /* of a set of patterns, in uint64_t */
    uint64_t *seen;
    struct match_source *sources, **last;
};

/* Puts rank into the rising list; -1 and one that is there: nothing. */
void match_hit_rank(struct match_finding *f, int rank);

/* match_hit.c: a line as a whole (newline not included), and a piece of one whose head, s->meta,
 * went by before. */
void match_hit_line(struct match_source *s, const uint8_t *raw, size_t len, uint64_t offset);
void match_hit_piece(struct match_source *s, const uint8_t *raw, size_t len, uint64_t offset);

#endif
