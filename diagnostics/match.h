/* SPDX-License-Identifier: Apache-2.0
 *
 * match: finds the cause of a failed run in its logs.
 *
 * Any number of sources (a file, a stream, a rank's standard error) can be fed, in any order and in
 * pieces of any size; memory does not grow with the bytes fed. match_finish() orders the findings:
 * the earliest cause over all sources comes first where their times can be compared, otherwise the
 * strongest. Effects of a cause are listed under it. `hvd-doctor match`, the agent and the tests
 * use it. One thread at a time for a matcher and its patterns; the caller owns all that is returned
 * by a create or finish.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_H
#define HVD_DIAGNOSTICS_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/base/err.h"
#include "diagnostics/match_time.h"
#include "diagnostics/patterns.h"

#define MATCH_LINE                                                                                 \
    4096 /* bytes of a line that an expression is matched against; longer lines are examined in    \
            pieces */
#define MATCH_OVERLAP 1024 /* bytes that two neighbouring pieces have in common */
#define MATCH_TEXT    400  /* bytes of the matching line that are shown */
#define MATCH_DETAIL  800  /* bytes kept of the lines after the matching line */
#define MATCH_SAY     240  /* bytes of the pattern's sentence, filled in */
#define MATCH_RANKS   16   /* ranks listed by number */

struct match_opts {
    struct patterns *patterns; /* borrowed; NULL: the compiled-in ones */
    const char *as_cause;      /* ids that count as causes here ("xid-63 xid-92"); copied */
    const char *as_noise;      /* ids that do not count; copied */
    bool failed;               /* the job failed, even if no log shows it */
};

struct match;
struct match_source;

/* opts may be NULL. */
int match_create(const struct match_opts *opts, struct match **ret, struct err *err);
void match_destroy(struct match *m);

/* Opens a source. name is copied and shown to the user. rank -1: the rank is taken from the name
 * ("rank.3/stderr") or from the lines. Returns NULL without memory. The source lives as long as
 * the matcher. */
struct match_source *match_open_source(struct match *m, const char *name, int rank);

/* Feeds bytes of a source. A last line without newline is examined in match_close_source(). A
 * failed allocation is reported by match_finish(). */
void match_feed(struct match_source *s, const void *bytes, size_t len);
void match_close_source(struct match_source *s);

/* Tells the matcher that the job failed: patterns with the condition "failed" apply. */
void match_set_failed(struct match *m);

enum match_verdict {
    MATCH_NOTHING,     /* no finding, no failure */
    MATCH_FOUND,       /* causes */
    MATCH_EFFECTS,     /* only effects: the cause is in another log */
    MATCH_UNEXPLAINED, /* a failure, but no known cause */
};

struct match_finding {
    const struct pattern *pattern;
    enum match_kind_shown { MATCH_AS_CAUSE, MATCH_AS_EFFECT, MATCH_AS_INFO, MATCH_AS_FAILURE } as;
    char say[MATCH_SAY]; /* the pattern's sentence with $1 or $0 filled in */
    const char *source;  /* source of the first matching line; owned by the matcher */
    int rank;            /* -1: not known */
    uint64_t line;       /* number of the line, from 1 */
    uint64_t offset;     /* position of the line in the source, in bytes */
    struct match_time time;
    char text[MATCH_TEXT];     /* the line, cut, safe to print */
    char detail[MATCH_DETAIL]; /* lines after it that belong to it, with newlines; may be empty */
    uint64_t count;            /* matching lines over all sources, this one included */
    int ranks[MATCH_RANKS];    /* ranks that logged it, ascending */
    int nranks;
    bool more_ranks;
};

struct match_result {
    enum match_verdict verdict;
    struct match_finding *findings; /* the first one is the verdict's */
    size_t n;
    struct match_finding *effects; /* effects of findings[0], and weaker explanations */
    size_t neffects;
    struct match_finding *notes; /* findings of kind info, shown beside a failure */
    size_t nnotes;
    uint64_t lines, bytes;
    size_t sources;
};

/* Orders what was found so far. May be called more than once, also with more feeding in between. */
int match_finish(struct match *m, struct match_result **ret, struct err *err);
void match_result_destroy(struct match_result *r);

/* 0 nothing, 1 a cause or an effect, 3 a failure that nothing explains. */
int match_exit_code(const struct match_result *r);

/* Writes the cause in full with its lines and what to type, then its effects; the verdict is the
 * last line. */
void match_print(const struct match_result *r, FILE *out);

/* One line: "shm-full: /dev/shm is full on rank 3 (rank.3/stderr:1042)". Returns dst. */
char *match_verdict_text(const struct match_result *r, char *dst, size_t size);

#endif
