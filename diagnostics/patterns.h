/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns: what is known about lines of logs, as data: patterns/ *.txt, compiled in.
 *
 * A block of such a file:
 *
 *     [id] HVDLnnn kind strength [conditions...]
 *     re:     POSIX extended regular expression, case counts; several lines: any of them
 *     except: the line counts only when this does not match
 *     of:     ids, see the kinds
 *     say:    the cause in one line; $1 is what the first group of the matching re took, or
 *             $0 what all of it took
 *     why:    what happens there
 *     do:     what to type, the same everywhere; or docker: k8s: host:
 *     act:    the class of that, one of check_action_name() ("reset-gpu"); none where it is absent
 *     ref:    where this is known from
 *     eg:     a line that must match, for the tests; "\n" in it ends a line
 *     no:     a line that must not
 *
 * Kinds: cause; effect (something else went wrong first: hidden behind any cause); info (shown
 * beside a failure, never alone); failure (says that the job failed, not why); ignore (a line with
 * it never counts; with "of:" these ids do not count either on the few lines before and behind it).
 * "of:" of a cause or effect: it is an effect where one of these ids is a cause.
 * Strength: 3 says it all, 2 the usual, 1 vague: hidden behind any stronger cause.
 * Conditions: "failed" only where the log shows a failure; "info" also on lines of level INFO;
 * "follow" keeps the lines after it; "exception" keeps the end of the traceback; "absent" names
 * the few ranks whose own logs lack the line.
 *
 * Expressions see a line without the time, rank and launcher's prefixes it begins with. The
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
#define PATTERN_LITERAL  20 /* longer ones are cut: the prefilter may err on the careful side */
#define PATTERN_REFS     3

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
    char literal[PATTERN_LITERAL + 1]; /* in every match of text, lower case */
    regex_t *compiled;                 /* NULL: not yet */
};

struct pattern {
    const char *id;
    const char *code;
    enum pattern_kind kind;
    int strength;
    unsigned conditions;
    struct pattern_regex regex[PATTERN_REGEX];
    int nregex;
    struct pattern_regex except; /* text NULL: none */
    const char *of;              /* ids with blanks between them; NULL: none */
    const char *say;
    const char *why;
    const char *fix[FIX_PLACES]; /* "do:" stands in all of them */
    enum check_action action;
    const char *refs[PATTERN_REFS];
    const char *examples[PATTERN_EXAMPLES];
    int nexamples;
    const char *negatives[PATTERN_EXAMPLES];
    int nnegatives;
};

struct patterns {
    struct pattern *v; /* in the order of the files: the first one wins a line */
    size_t n;
    char *text;        /* what the strings point into */
    struct scan *scan; /* ids: the index of the pattern; n: a terminal sequence begins */
};

/* The compiled-in patterns. The caller's, until patterns_destroy (NULL is fine). */
int patterns_create(struct patterns **ret, struct err *err);
void patterns_destroy(struct patterns *p);

/* The same from one text; messages name "name:line". For tests and fuzzers. */
int patterns_parse(const char *text, size_t len, const char *name, struct patterns **ret,
                   struct err *err);

/* NULL: no such id or code. */
const struct pattern *patterns_find(const struct patterns *p, const char *id);

/* True when text matches: one of the regexes and not the exception. ret_regex: which, may be NULL.
 */
bool pattern_matches(struct pattern *p, const char *text, int *ret_regex);

/* Is id one of the words of list? NULL list: no. */
bool pattern_listed(const char *list, const char *id);

const char *pattern_kind_name(enum pattern_kind kind);

/* The longest run of plain characters that each match of the expression contains, lower case, cut
 * to size - 1; for alternatives at the top level: none. Returns its length before the cut. */
size_t patterns_literal(const char *regex, char *dst, size_t size);

#endif
