/* SPDX-License-Identifier: Apache-2.0
 *
 * match_state: structures that match.c, match_hit.c (bytes to lines to hits) and match_rank.c (hits
 * to findings) share. Private to them.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_STATE_H
#define HVD_DIAGNOSTICS_MATCH_STATE_H

#include "diagnostics/match.h"
#include "diagnostics/match_line.h"

#define MATCH_CARRY 8192 /* bytes of an incomplete line that are kept */

/* All hits of one pattern in one source: the first matching line, and how many lines match. */
struct match_hit {
    struct match_hit *next;
    size_t pattern;
    struct match_finding found; /* pattern and say are set by match_rank */
    char got[96];               /* the text for $1 or $0 */
    uint64_t last_line;
    int last_rank;
};

struct match_source {
    struct match_source *next;
    struct match *m;
    char *name;
    int rank;
    uint64_t line;   /* number of the next line, from 1 */
    uint64_t offset; /* offset of the next byte in the source */
    struct match_hit *hits;
    uint8_t *carry; /* the incomplete line; NULL: none yet */
    size_t carry_len;
    uint64_t carry_offset; /* offset of that line's first byte */
    bool in_long;          /* the beginning of this line was examined already; meta describes it */
    struct match_meta meta;
    struct match_hit *following; /* the hit whose detail the next lines are */
    int follow_rank; /* rank in the prefix of the hit's line; -1: lines of any rank belong to it */
    int follow_left, follow_seen;
    const struct pattern *ignoring; /* an "ignore" pattern: the ids of its "of:" do not count for
                                       ignore_rank until line ignore_until */
    uint64_t ignore_until;
    int ignore_rank;
};

struct match {
    struct patterns *patterns;
    bool own_patterns;
    char *as_cause, *as_noise;
    bool failed;
    bool no_memory;
    size_t words; /* length of seen, a bit set of patterns, in uint64_t */
    uint64_t *seen;
    struct match_source *sources, **last;
};

/* Inserts rank into the ascending list of ranks; ignores -1 and duplicates. */
void match_hit_rank(struct match_finding *f, int rank);

/* match_hit.c: examines a complete line (without its newline), or a piece of a line whose
 * beginning was examined before and gave s->meta. */
void match_hit_line(struct match_source *s, const uint8_t *raw, size_t len, uint64_t offset);
void match_hit_piece(struct match_source *s, const uint8_t *raw, size_t len, uint64_t offset);

#endif
