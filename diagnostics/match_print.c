/* SPDX-License-Identifier: Apache-2.0
 *
 * match_print: writes a result for people: the cause, its line and what to type, then its effects.
 * Pure except for the stream.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/match.h"

#define CAUSES_SHOWN 5

int match_exit_code(const struct match_result *r)
{
    switch (r->verdict) {
    case MATCH_NOTHING:
        return 0;
    case MATCH_UNEXPLAINED:
        return 3;
    default:
        return 1;
    }
}

/* "ranks 0 1 2 5", "rank 3"; "" where none is known. */
static const char *ranks_text(const struct match_finding *f, char *dst, size_t size)
{
    size_t n = 0;
    dst[0] = 0;
    for (int i = 0; i < f->nranks && n + 16 < size; i++)
        n += (size_t)snprintf(dst + n, size - n, "%s%d",
                              i               ? " "
                              : f->nranks > 1 ? "ranks "
                                              : "rank ",
                              f->ranks[i]);
    if (f->more_ranks && n + 12 < size)
        snprintf(dst + n, size - n, " and more");
    return dst;
}

/* "rank 3, out/stderr:1042, 2024-05-01T10:00:03.123Z" */
static const char *place_text(const struct match_finding *f, char *dst, size_t size)
{
    char time[64], rank[32] = "";
    match_time_text(f->time, time, sizeof(time));
    if (f->rank >= 0)
        snprintf(rank, sizeof(rank), "rank %d, ", f->rank);
    snprintf(dst, size, "%s%s:%" PRIu64 "%s%s", rank, f->source, f->line, *time ? ", " : "", time);
    return dst;
}

static void print_lines(FILE *out, const char *head, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        fprintf(out, "%s%.*s\n", head, (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_fix(FILE *out, const struct pattern *p)
{
    bool same = true;
    for (int i = 1; i < FIX_PLACES; i++)
        same = same && p->fix[i] == p->fix[0];
    if (same && p->fix[0])
        fprintf(out, "  %-8s%s\n", "do", p->fix[0]);
    for (int i = 0; !same && i < FIX_PLACES; i++)
        if (p->fix[i])
            fprintf(out, "  %-8s%s\n", fix_place_name((enum fix_place)i), p->fix[i]);
}

static void print_count(FILE *out, const struct match_finding *f)
{
    char ranks[160];
    ranks_text(f, ranks, sizeof(ranks));
    if (f->count > 1)
        fprintf(out, "  %-8s%" PRIu64 " times%s%s\n", "seen", f->count, *ranks ? ", " : "", ranks);
}

static void print_full(FILE *out, const struct match_finding *f, const char *label)
{
    char place[512];
    fprintf(out, "%s %s %s: %s\n", label, f->pattern->code, f->pattern->id, f->say);
    fprintf(out, "  %-8s%s\n", "where", place_text(f, place, sizeof(place)));
    print_lines(out, "  | ", f->text);
    print_lines(out, "  | ", f->detail);
    print_count(out, f);
    if (f->pattern->why)
        fprintf(out, "  %-8s%s\n", "why", f->pattern->why);
    print_fix(out, f->pattern);
    for (int i = 0; i < PATTERN_REFS && f->pattern->refs[i]; i++)
        fprintf(out, "  %-8s%s\n", "see", f->pattern->refs[i]);
}

static void print_short(FILE *out, const struct match_finding *f)
{
    char ranks[160], place[512];
    ranks_text(f, ranks, sizeof(ranks));
    bool several = f->nranks > 1;
    fprintf(out, "  %s: %s (%" PRIu64 "x%s%s; %s)\n", f->pattern->id, f->say, f->count,
            several ? ", " : "", several ? ranks : "", place_text(f, place, sizeof(place)));
}

static void print_list(FILE *out, const char *title, const struct match_finding *v, size_t n)
{
    if (n > 0)
        fprintf(out, "%s\n", title);
    for (size_t i = 0; i < n; i++)
        print_short(out, &v[i]);
}

static const char *label_of(const struct match_result *r, size_t i)
{
    if (r->verdict == MATCH_EFFECTS)
        return i ? "ALSO" : "EFFECT";
    if (r->verdict == MATCH_UNEXPLAINED)
        return "FAILED";
    return i ? "ALSO" : "CAUSE";
}

void match_print(const struct match_result *r, FILE *out)
{
    char verdict[1024];
    size_t shown = r->n < CAUSES_SHOWN ? r->n : CAUSES_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        print_full(out, &r->findings[i], label_of(r, i));
        fputc('\n', out);
    }
    print_list(out, "Also found:", r->findings + shown, r->n - shown);
    print_list(out, "Effects of the cause, and less specific findings:", r->effects, r->neffects);
    print_list(out, "Worth knowing:", r->notes, r->nnotes);
    fprintf(out, "%s\n", match_verdict_text(r, verdict, sizeof(verdict)));
}

char *match_verdict_text(const struct match_result *r, char *dst, size_t size)
{
    char place[512] = "";
    const struct match_finding *f = r->n ? &r->findings[0] : NULL;
    if (f)
        place_text(f, place, sizeof(place));
    if (r->verdict == MATCH_FOUND && f)
        snprintf(dst, size, "%s: %s (%s)", f->pattern->id, f->say, place);
    else if (r->verdict == MATCH_EFFECTS && f)
        snprintf(dst, size, "only effects in these logs: %s: %s (%s); the cause is in another log",
                 f->pattern->id, f->say, place);
    else if (r->verdict == MATCH_UNEXPLAINED && f)
        snprintf(dst, size, "the job failed, no known cause explains it: %s (%s)", f->say, place);
    else if (r->verdict == MATCH_UNEXPLAINED)
        snprintf(dst, size, "the job failed, the logs contain no known cause");
    else
        snprintf(dst, size, "nothing found in %" PRIu64 " lines of %zu log%s", r->lines, r->sources,
                 r->sources == 1 ? "" : "s");
    return dst;
}
