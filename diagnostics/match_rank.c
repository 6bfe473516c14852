/* SPDX-License-Identifier: Apache-2.0
 *
 * match_rank: makes findings from the hits of all sources: hits of one pattern become one finding,
 * a cause that another cause explains becomes an effect, and the earliest cause comes first. Called
 * by match_finish().
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/match_state.h"

#define ABSENT_MAX 4 /* if more ranks than this lack the line, none is named */

/* The hits of one pattern over all sources. */
struct group {
    bool there;
    enum pattern_kind kind;
    struct match_finding found;
    char got[96];
};

/* ---- order ---------------------------------------------------------------------------------- */

/* <0: a was first, >0: b was, 0: unknown. */
static int order(const struct match_finding *a, const struct match_finding *b)
{
    if (match_time_comparable(a->time, b->time)) {
        int by_time = match_time_compare(a->time, b->time);
        if (by_time != 0)
            return by_time;
    }
    if (a->source == b->source)
        return (a->line > b->line) - (a->line < b->line);
    return 0;
}

/* Returns whether a comes before b in the result. Strength 1 comes last, whatever its time. */
static bool better(const struct match_finding *a, const struct match_finding *b)
{
    bool vague = a->pattern->strength == 1, other = b->pattern->strength == 1;
    if (vague != other)
        return other;
    int by_time = order(a, b);
    return by_time ? by_time < 0 : a->pattern->strength > b->pattern->strength;
}

/* Selection sort: the order is partial (some times cannot be compared), and qsort() needs a
 * total one. */
static void sort(struct match_finding *v, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        size_t best = i;
        for (size_t k = i + 1; k < n; k++)
            if (better(&v[k], &v[best]))
                best = k;
        struct match_finding first = v[best];
        memmove(&v[i + 1], &v[i], (best - i) * sizeof(*v));
        v[i] = first;
    }
}

/* ---- hits to groups ------------------------------------------------------------------------- */

static void add_hit(struct group *g, const struct match_hit *h)
{
    if (!g->there || order(&h->found, &g->found) < 0) {
        struct match_finding before = g->found;
        bool there = g->there;
        g->there = true;
        g->found = h->found;
        memcpy(g->got, h->got, sizeof(g->got));
        if (!there)
            return;
        g->found.count += before.count;
        g->found.more_ranks |= before.more_ranks;
        for (int i = 0; i < before.nranks; i++)
            match_hit_rank(&g->found, before.ranks[i]);
        return;
    }
    g->found.count += h->found.count;
    g->found.more_ranks |= h->found.more_ranks;
    for (int i = 0; i < h->found.nranks; i++)
        match_hit_rank(&g->found, h->found.ranks[i]);
}

/* Fills in the pattern's sentence: $1 is the text of the first group, $0 the whole match. An
 * empty "up ($1)" becomes "up". */
static void fill_in(const struct pattern *p, struct group *g)
{
    const char *dollar = strstr(p->say, "$1");
    dollar = dollar ? dollar : strstr(p->say, "$0");
    g->found.pattern = p;
    if (!dollar) {
        snprintf(g->found.say, sizeof(g->found.say), "%s", p->say);
        return;
    }
    size_t head = (size_t)(dollar - p->say);
    const char *tail = dollar + 2;
    while (!g->got[0] && head > 0 && strchr(" (:", p->say[head - 1]))
        head--;
    tail += !g->got[0] && *tail == ')';
    snprintf(g->found.say, sizeof(g->found.say), "%.*s%s%s", (int)head, p->say, g->got, tail);
}

static bool logged(const struct match_source *s, size_t pattern)
{
    for (const struct match_hit *h = s->hits; h; h = h->next)
        if (h->pattern == pattern)
            return true;
    return false;
}

/* Appends "; not logged by rank 5" to a finding whose pattern names the few ranks without it:
 * the other ranks waited for them. Needs a log for each rank. */
static void name_absent(const struct match *m, size_t pattern, struct match_finding *f)
{
    size_t with = 0, without = 0, n = 0, len = strlen(f->say);
    char ranks[64] = "";
    for (const struct match_source *s = m->sources; s; s = s->next) {
        if (s->rank < 0)
            continue;
        bool has = logged(s, pattern);
        with += has;
        without += !has;
        if (!has && n + 12 < sizeof(ranks))
            n += (size_t)snprintf(ranks + n, sizeof(ranks) - n, " %d", s->rank);
    }
    if (with > 0 && without > 0 && without <= ABSENT_MAX)
        snprintf(f->say + len, sizeof(f->say) - len, "; not logged by rank%s%s",
                 without > 1 ? "s" : "", ranks);
}

static struct group *gather(const struct match *m)
{
    struct group *groups = calloc(m->patterns->n + 1, sizeof(*groups));
    if (!groups)
        return NULL;
    for (const struct match_source *s = m->sources; s; s = s->next)
        for (const struct match_hit *h = s->hits; h; h = h->next)
            add_hit(&groups[h->pattern], h);
    for (size_t i = 0; i < m->patterns->n; i++) {
        if (!groups[i].there)
            continue;
        groups[i].kind = m->patterns->v[i].kind;
        if (pattern_listed(m->as_cause, m->patterns->v[i].id))
            groups[i].kind = PATTERN_CAUSE;
        fill_in(&m->patterns->v[i], &groups[i]);
        if (m->patterns->v[i].conditions & PATTERN_ABSENT)
            name_absent(m, i, &groups[i].found);
    }
    return groups;
}

static bool counts_alone(const struct match *m, size_t i)
{
    return !(m->patterns->v[i].conditions & PATTERN_IF_FAILED);
}

static bool shows_failure(const struct match *m, const struct group *groups)
{
    for (size_t i = 0; i < m->patterns->n; i++)
        if (groups[i].there && counts_alone(m, i) && groups[i].kind != PATTERN_INFO)
            return true;
    return m->failed;
}

static bool has_cause(const struct match *m, const struct group *groups, const char *ids)
{
    for (size_t i = 0; i < m->patterns->n; i++)
        if (groups[i].there && groups[i].kind == PATTERN_CAUSE &&
            pattern_listed(ids, m->patterns->v[i].id))
            return true;
    return false;
}

/* Unless the run failed, removes findings that count only in a failed run. Turns causes that others
 * explain into effects. Returns whether a cause of strength 2 or 3 remains. */
static bool weigh(const struct match *m, struct group *groups, bool failed)
{
    bool strong = false;
    for (size_t i = 0; i < m->patterns->n; i++)
        groups[i].there = groups[i].there && (failed || counts_alone(m, i));
    for (size_t i = 0; i < m->patterns->n; i++) {
        const struct pattern *p = &m->patterns->v[i];
        if (!groups[i].there || groups[i].kind != PATTERN_CAUSE)
            continue;
        if (p->of && has_cause(m, groups, p->of))
            groups[i].kind = PATTERN_EFFECT;
        else
            strong = strong || p->strength > 1;
    }
    return strong;
}

static void put(struct match_finding *list, size_t *n, const struct group *g,
                enum match_kind_shown as)
{
    list[*n] = g->found;
    list[*n].as = as;
    (*n)++;
}

static void sort_out(const struct match *m, const struct group *groups, bool strong,
                     struct match_result *r)
{
    for (size_t i = 0; i < m->patterns->n; i++) {
        const struct group *g = &groups[i];
        if (!g->there)
            continue;
        if (g->kind == PATTERN_CAUSE && (!strong || g->found.pattern->strength > 1))
            put(r->findings, &r->n, g, MATCH_AS_CAUSE);
        else if (g->kind == PATTERN_CAUSE || g->kind == PATTERN_EFFECT)
            put(r->effects, &r->neffects, g, MATCH_AS_EFFECT);
        else if (g->kind == PATTERN_INFO)
            put(r->notes, &r->nnotes, g, MATCH_AS_INFO);
    }
    sort(r->findings, r->n);
    sort(r->effects, r->neffects);
    sort(r->notes, r->nnotes);
}

/* Without a cause: reports the effects, otherwise the lines that show the failure. */
static void fall_back(const struct match *m, const struct group *groups, bool failed,
                      struct match_result *r)
{
    if (r->neffects > 0) {
        struct match_finding *none = r->findings;
        r->findings = r->effects;
        r->n = r->neffects;
        r->effects = none;
        r->neffects = 0;
        r->verdict = MATCH_EFFECTS;
        return;
    }
    for (size_t i = 0; i < m->patterns->n; i++)
        if (groups[i].there && groups[i].kind == PATTERN_FAILURE)
            put(r->findings, &r->n, &groups[i], MATCH_AS_FAILURE);
    sort(r->findings, r->n);
    r->verdict = failed ? MATCH_UNEXPLAINED : MATCH_NOTHING;
}

void match_result_destroy(struct match_result *r)
{
    if (!r)
        return;
    free(r->findings);
    free(r->effects);
    free(r->notes);
    free(r);
}

static struct match_result *new_result(size_t n)
{
    struct match_result *r = calloc(1, sizeof(*r));
    if (!r)
        return NULL;
    r->findings = calloc(n + 1, sizeof(*r->findings));
    r->effects = calloc(n + 1, sizeof(*r->effects));
    r->notes = calloc(n + 1, sizeof(*r->notes));
    if (r->findings && r->effects && r->notes)
        return r;
    match_result_destroy(r);
    return NULL;
}

int match_finish(struct match *m, struct match_result **ret, struct err *err)
{
    size_t n = 0;
    auto_free struct group *groups = m->no_memory ? NULL : gather(m);
    for (size_t i = 0; groups && i < m->patterns->n; i++)
        n += groups[i].there;
    struct match_result *r = groups ? new_result(n) : NULL;
    if (!r)
        return err_set(err, ENOMEM, "no memory for the findings in the logs");
    bool failed = shows_failure(m, groups);
    bool strong = weigh(m, groups, failed);
    sort_out(m, groups, strong, r);
    r->verdict = MATCH_FOUND;
    if (r->n == 0)
        fall_back(m, groups, failed, r);
    if (r->verdict == MATCH_NOTHING)
        r->nnotes = 0;
    for (const struct match_source *s = m->sources; s; s = s->next) {
        r->sources++;
        r->bytes += s->offset;
        r->lines += s->line - 1 + (s->carry_len > 0);
    }
    *ret = r;
    return 0;
}
