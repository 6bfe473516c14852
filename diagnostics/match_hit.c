/* SPDX-License-Identifier: Apache-2.0
 *
 * match_hit: examines a line in which the automaton found a word of some pattern: decides which
 * pattern matches, and stores the hit. If several match, the first in the order of the pattern
 * files gets the line. Called by match.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/match_scan.h"
#include "diagnostics/match_state.h"

#define IGNORE_LINES                                                                               \
    5 /* lines before and after an "ignore" line in which the patterns of its "of" do not count */
#define FOLLOW_LINES  4   /* lines kept as detail of a hit */
#define FOLLOW_LOOKED 400 /* lines after which a hit's detail is complete */

/* The piece of a line that is being examined. */
struct piece {
    const uint8_t *raw;
    size_t len;
    uint64_t offset; /* position of the line in the source */
    struct match_meta meta;
    char clean[MATCH_LINE + 1];
};

static int rank_of(const struct match_source *s, const struct match_meta *meta)
{
    return meta->rank >= 0 ? meta->rank : s->rank;
}

/* ---- lines that belong to the one before ---------------------------------------------------- */

static void add_detail(struct match_hit *h, const char *text)
{
    char line[MATCH_DETAIL];
    size_t n = strlen(h->found.detail), len = strlen(text);
    match_line_show((const uint8_t *)text, len, 0, line, sizeof(line) / 4);
    snprintf(h->found.detail + n, sizeof(h->found.detail) - n, "%s%s", n ? "\n" : "", line);
}

static bool indented(const struct piece *p)
{
    size_t at = p->meta.text;
    if (at == 0)
        return p->clean[0] == ' ';
    return at >= 2 && p->clean[at - 1] == ' ' && p->clean[at - 2] == ' ';
}

static bool inside_traceback(const struct piece *p, const char *text)
{
    return indented(p) || !*text || strncmp(text, "Traceback", 9) == 0 ||
           strncmp(text, "During handling", 15) == 0 ||
           strncmp(text, "The above exception", 19) == 0;
}

static void follow(struct match_source *s, const struct piece *p)
{
    struct match_hit *h = s->following;
    const char *text = p->clean + p->meta.text;
    if (++s->follow_seen > FOLLOW_LOOKED) {
        s->following = NULL;
        return;
    }
    if (s->follow_rank >= 0 && p->meta.rank != s->follow_rank)
        return;
    bool exception = s->m->patterns->v[h->pattern].conditions & PATTERN_EXCEPTION;
    if (exception && inside_traceback(p, text))
        return;
    if (*text) /* lines of one rank are kept without the launcher's prefix, such as "3: " */
        add_detail(h, s->follow_rank >= 0 ? text : p->clean);
    if (exception || !*text || --s->follow_left <= 0)
        s->following = NULL;
}

static void start_following(struct match_source *s, struct match_hit *h, int rank)
{
    if (!(s->m->patterns->v[h->pattern].conditions & (PATTERN_FOLLOW | PATTERN_EXCEPTION)))
        return;
    s->following = h;
    s->follow_rank = rank;
    s->follow_left = FOLLOW_LINES;
    s->follow_seen = 0;
}

/* ---- hits ----------------------------------------------------------------------------------- */

void match_hit_rank(struct match_finding *f, int rank)
{
    int i = 0;
    while (i < f->nranks && f->ranks[i] < rank)
        i++;
    if (rank < 0 || (i < f->nranks && f->ranks[i] == rank))
        return;
    if (f->nranks == MATCH_RANKS) {
        f->more_ranks = true;
        return;
    }
    memmove(&f->ranks[i + 1], &f->ranks[i], (size_t)(f->nranks - i) * sizeof(f->ranks[0]));
    f->ranks[i] = rank;
    f->nranks++;
}

static struct match_hit *new_hit(struct match_source *s, size_t pattern, int regex,
                                 const struct piece *p)
{
    struct match_hit *h = calloc(1, sizeof(*h));
    if (!h) {
        s->m->no_memory = true;
        return NULL;
    }
    h->pattern = pattern;
    h->next = s->hits;
    s->hits = h;
    h->found.source = s->name;
    h->found.rank = rank_of(s, &p->meta);
    h->found.line = s->line;
    h->found.offset = p->offset;
    h->found.time = p->meta.time;
    regmatch_t at[2] = {{0}};
    const char *text = p->clean + p->meta.text;
    if (regexec(s->m->patterns->v[pattern].regex[regex].compiled, text, 2, at, 0) != 0)
        at[0] = at[1] = (regmatch_t){.rm_so = -1, .rm_eo = -1};
    const regmatch_t *got = &at[strstr(s->m->patterns->v[pattern].say, "$0") ? 0 : 1];
    if (got->rm_so >= 0)
        match_line_show((const uint8_t *)text + got->rm_so, (size_t)(got->rm_eo - got->rm_so), 0,
                        h->got, sizeof(h->got));
    size_t where = at[0].rm_so > 0 ? (size_t)at[0].rm_so : 0;
    match_line_show(p->raw, p->len, p->meta.text + where, h->found.text, sizeof(h->found.text));
    return h;
}

static void hit(struct match_source *s, size_t pattern, int regex, const struct piece *p)
{
    struct match_hit *h = s->hits;
    while (h && h->pattern != pattern)
        h = h->next;
    if (h && h->last_line == s->line)
        return; /* found already: the pieces of a long line overlap */
    bool fresh = !h;
    if (fresh && !(h = new_hit(s, pattern, regex, p)))
        return;
    h->last_line = s->line;
    h->last_rank = rank_of(s, &p->meta);
    h->found.count++;
    match_hit_rank(&h->found, h->last_rank);
    if (fresh)
        start_following(s, h, p->meta.rank);
}

static void take_back(struct match_source *s, const char *ids, int rank)
{
    for (struct match_hit **at = &s->hits, *h; (h = *at);) {
        bool listed = h->last_rank == rank && pattern_listed(ids, s->m->patterns->v[h->pattern].id);
        if (listed && h->last_line + IGNORE_LINES >= s->line && --h->found.count == 0) {
            if (s->following == h)
                s->following = NULL;
            *at = h->next;
            free(h);
        } else {
            at = &h->next;
        }
    }
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Sets the bits of the patterns that have a word in the text; false: none. */
static bool candidates(struct match *m, const char *text)
{
    const struct scan *scan = m->patterns->scan;
    const uint8_t *p = (const uint8_t *)text, *end = p + strlen(text);
    uint32_t state = 0;
    bool any = false;
    memset(m->seen, 0, m->words * sizeof(*m->seen));
    while ((p = scan_next(scan, &state, p, end))) {
        scan_ids(scan, state, m->seen);
        any = true;
    }
    return any;
}

/* Records that the line belongs to pattern i. */
static void found(struct match_source *s, size_t i, int regex, const struct piece *p)
{
    const struct pattern *pattern = &s->m->patterns->v[i];
    int rank = rank_of(s, &p->meta);
    if (pattern_listed(s->m->as_noise, pattern->id))
        return;
    if (pattern->kind == PATTERN_IGNORE) {
        if (pattern->of) {
            take_back(s, pattern->of, rank);
            s->ignoring = pattern;
            s->ignore_rank = rank;
            s->ignore_until = s->line + IGNORE_LINES;
        }
        return;
    }
    if (s->ignoring && s->line > s->ignore_until)
        s->ignoring = NULL;
    if (!s->ignoring || s->ignore_rank != rank || !pattern_listed(s->ignoring->of, pattern->id))
        hit(s, i, regex, p);
}

/* A line of source code in a traceback ("raise ...") shows what could be raised, not what was. */
static bool is_source(const char *clean, const char *text)
{
    static const char *const words[] = {"raise ", "except ", "return ", "assert ", "with ", "if "};
    const char *p = text + strspn(text, " ");
    if (p - clean < 4 || strncmp(p - 4, "    ", 4) != 0)
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strncmp(p, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

static void look(struct match_source *s, const struct piece *p)
{
    struct match *m = s->m;
    const char *text = p->clean + p->meta.text;
    if (!candidates(m, text) || is_source(p->clean, text))
        return;
    for (size_t w = 0; w < m->words; w++) {
        for (uint64_t bits = m->seen[w]; bits; bits &= bits - 1) {
            size_t i = w * 64 + (size_t)__builtin_ctzll(bits);
            struct pattern *pattern = &m->patterns->v[i];
            int regex = 0;
            if (p->meta.info && pattern->kind != PATTERN_IGNORE &&
                !(pattern->conditions & PATTERN_IF_INFO))
                continue;
            if (!pattern_matches(pattern, text, &regex))
                continue;
            found(s, i, regex, p);
            return;
        }
    }
}

/* Examines a part of a line without carriage returns, whose prefix p->meta describes. */
static void look_through(struct match_source *s, struct piece *p, const uint8_t *raw, size_t len)
{
    for (size_t at = 0;; at += MATCH_LINE - MATCH_OVERLAP) {
        p->raw = raw + at;
        p->len = len - at < MATCH_LINE ? len - at : MATCH_LINE;
        match_line_clean(p->raw, p->len, p->clean, sizeof(p->clean));
        if (at > 0)
            p->meta.text = 0;
        look(s, p);
        if (at + MATCH_LINE >= len)
            return;
    }
}

/* Splits at carriage returns: each state of a progress bar is examined, all with the same line
 * number. */
static void look_at_parts(struct match_source *s, struct piece *p, const uint8_t *raw, size_t len)
{
    const uint8_t *end = raw + len;
    while (raw < end) {
        const uint8_t *cr = memchr(raw, '\r', (size_t)(end - raw));
        size_t n = cr ? (size_t)(cr - raw) : (size_t)(end - raw);
        struct match_meta before = p->meta;
        match_line_clean(raw, n, p->clean, sizeof(p->clean));
        match_line_meta(p->clean, &p->meta);
        if (p->meta.rank < 0)
            p->meta.rank = before.rank;
        if (p->meta.time.kind == MATCH_TIME_NONE)
            p->meta.time = before.time;
        if (s->following && n > 0)
            follow(s, p);
        look_through(s, p, raw, n);
        raw += n + 1;
    }
}

void match_hit_line(struct match_source *s, const uint8_t *raw, size_t len, uint64_t offset)
{
    struct piece p = {.offset = offset, .meta = {.rank = -1}};
    if (len > 0 && raw[len - 1] == '\r')
        len--;
    p.clean[0] = 0;
    if (len == 0 && s->following)
        follow(s, &p);
    look_at_parts(s, &p, raw, len);
    s->meta = p.meta;
}

void match_hit_piece(struct match_source *s, const uint8_t *raw, size_t len, uint64_t offset)
{
    struct piece p = {.offset = offset, .meta = s->meta};
    p.clean[0] = 0;
    look_at_parts(s, &p, raw, len);
}
