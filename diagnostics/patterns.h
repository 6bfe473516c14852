/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns: the known log lines, as data: the files patterns/ *.txt, compiled in.
 *
 * A block of such a file:
 *
 *     [id] HVDLnnn kind strength [conditions...]
 *     re:     POSIX extended regular expression, case counts; several lines: any of them
 *     except: the line counts only when this does not match
 *     of:     ids, see the kinds
 *     say:    the cause in one line; $1 is the text of the first group of the matching re,
 *             $0 the whole match
 *     why:    what happens in this case
 *     do:     what to type, the same everywhere; or docker: k8s: host:
 *     act:    the kind of action, one of check_action_name() ("reset-gpu"); default: none
 *     ref:    where this is known from
 *     eg:     a line that must match, for the tests; "\n" in it ends a line
 *     no:     a line that must not match
 *
 * Kinds: cause; effect (something else failed first: listed below any cause); info (shown
 * beside a failure, never alone); failure (says that the job failed, not why); ignore (the line
 * does not count; the ids of its "of:" do not count on the few lines before and after it either).
 * A cause or effect with "of:" is an effect wherever one of those ids is a cause.
 * Strength: 3 names the cause exactly, 2 is the usual, 1 is vague: listed below any stronger cause.
 * Conditions: "failed" counts only if the log shows a failure; "info" also matches lines of level
 * INFO; "follow" keeps the lines after it; "exception" keeps the end of the traceback; "absent"
 * names the few ranks whose own logs lack the line.
 *
 * Expressions are matched against a line without its time stamp, rank and launcher's prefix. The
 * prefilter needs a literal of four bytes or more in every re (patterns_literal).
 * One thread at a time: expressions are compiled when they are first needed.
 */
#ifndef HVD_DIAGNOSTICS_PATTERNS_H
#define HVD_DIAGNOSTICS_PATTERNS_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "diagnostics/check.h"

#define PATTERN_REGEX    8
#define PATTERN_EXAMPLES 8
#define PATTERN_LITERAL                                                                            \
    20 /* longer literals are cut: the prefilter may pass too many lines, never too few */
#define PATTERN_REFS 3

enum pattern_kind {
    PATTERN_CAUSE,
    PATTERN_EFFECT,
    PATTERN_INFO,
    PATTERN_FAILURE,
    PATTERN_IGNORE,
};

enum {
    PATTERN_IF_FAILED = 1 << 0,
    PATTERN_IF_INFO = 1 << 1,
    PATTERN_FOLLOW = 1 << 2,
    PATTERN_EXCEPTION = 1 << 3,
    PATTERN_ABSENT = 1 << 4,
};

struct pattern_regex {
    const char *text;
    char literal[PATTERN_LITERAL + 1]; /* contained in every match of text, in lower case */
    regex_t *compiled;                 /* NULL: not compiled yet */
};

struct pattern {
    const char *id;
    const char *code;
    enum pattern_kind kind;
    int strength;
    unsigned conditions;
    struct pattern_regex regex[PATTERN_REGEX];
    int nregex;
    struct pattern_regex except; /* text NULL: no exception */
    const char *of;              /* ids, separated by blanks; NULL: none */
    const char *say;
    const char *why;
    const char *fix[FIX_PLACES]; /* a "do:" line fills all places */
    enum check_action action;
    const char *refs[PATTERN_REFS];
    const char *examples[PATTERN_EXAMPLES];
    int nexamples;
    const char *negatives[PATTERN_EXAMPLES];
    int nnegatives;
};

struct patterns {
    struct pattern *v; /* in the order of the files: the first pattern that matches gets the line */
    size_t n;
    char *text; /* the copy that all strings point into */
    struct scan
        *scan; /* a word's id is the index of its pattern; id n: a terminal escape sequence */
};

/* Parses the compiled-in patterns. The caller owns them until patterns_destroy(), which accepts
 * NULL. */
int patterns_create(struct patterns **ret, struct err *err);
void patterns_destroy(struct patterns *p);

/* Parses one text; error messages name "name:line". For tests and fuzzers. */
int patterns_parse(const char *text, size_t len, const char *name, struct patterns **ret,
                   struct err *err);

/* Finds a pattern by id or code; NULL: unknown. */
const struct pattern *patterns_find(const struct patterns *p, const char *id);

/* Returns whether text matches one of the regexes and not the exception. ret_regex (may be
 * NULL): the index of the regex. */
bool pattern_matches(struct pattern *p, const char *text, int *ret_regex);

/* Returns whether id is one of the words of list. A NULL list has none. */
bool pattern_listed(const char *list, const char *id);

const char *pattern_kind_name(enum pattern_kind kind);

/* Computes the longest run of plain characters that every match of the expression contains, in
 * lower case and cut to size - 1. Expressions with alternatives at the top level have none.
 * Returns its length before the cut. */
size_t patterns_literal(const char *regex, char *dst, size_t size);

#endif
