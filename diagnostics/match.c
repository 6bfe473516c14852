/* SPDX-License-Identifier: Apache-2.0
 *
 * match: see match.h. Here bytes become lines: the automaton scans the caller's bytes in place, and
 * only a line in which it finds a word is examined further. An incomplete line at the end of the
 * bytes is kept in the carry buffer for the next call; a line that is too long for it is examined
 * in pieces.
 */
#include "diagnostics/match.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/match_scan.h"
#include "diagnostics/match_state.h"

int match_create(const struct match_opts *opts, struct match **ret, struct err *err)
{
    static const struct match_opts none;
    const struct match_opts *o = opts ? opts : &none;
    struct match *m = calloc(1, sizeof(*m));
    if (!m)
        return err_set(err, ENOMEM, "no memory for the matcher");
    m->last = &m->sources;
    m->failed = o->failed;
    m->patterns = o->patterns;
    if (!m->patterns) {
        int rc = patterns_create(&m->patterns, err);
        if (rc < 0) {
            free(m);
            return rc;
        }
        m->own_patterns = true;
    }
    m->words = m->patterns->n / 64 + 1;
    m->seen = calloc(m->words, sizeof(*m->seen));
    m->as_cause = strdup(o->as_cause ? o->as_cause : "");
    m->as_noise = strdup(o->as_noise ? o->as_noise : "");
    if (!m->seen || !m->as_cause || !m->as_noise) {
        match_destroy(m);
        return err_set(err, ENOMEM, "no memory for the matcher");
    }
    *ret = m;
    return 0;
}

static void source_destroy(struct match_source *s)
{
    for (struct match_hit *h = s->hits, *next; h; h = next) {
        next = h->next;
        free(h);
    }
    free(s->carry);
    free(s->name);
    free(s);
}

void match_destroy(struct match *m)
{
    if (!m)
        return;
    for (struct match_source *s = m->sources, *next; s; s = next) {
        next = s->next;
        source_destroy(s);
    }
    if (m->own_patterns)
        patterns_destroy(m->patterns);
    free(m->as_cause);
    free(m->as_noise);
    free(m->seen);
    free(m);
}

struct match_source *match_open_source(struct match *m, const char *name, int rank)
{
    struct match_source *s = calloc(1, sizeof(*s));
    if (!s || !(s->name = strdup(name))) {
        free(s);
        return NULL;
    }
    s->m = m;
    s->rank = rank >= 0 ? rank : match_line_rank_of_name(name);
    s->line = 1;
    *m->last = s;
    m->last = &s->next;
    return s;
}

void match_set_failed(struct match *m)
{
    m->failed = true;
}

/* ---- bytes to lines ------------------------------------------------------------------------- */

static uint64_t count_lines(const uint8_t *p, const uint8_t *end)
{
    uint64_t n = 0;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
        n++;
        p++;
    }
    return n;
}

/* Scans complete lines from p to end; the first byte is at offset in the source. */
static void scan_lines(struct match_source *s, const uint8_t *p, const uint8_t *end,
                       uint64_t offset)
{
    const struct scan *scan = s->m->patterns->scan;
    const uint8_t *from = p;
    uint32_t state = 0;
    while (p < end) {
        const uint8_t *line = p, *hit = p;
        if (!s->following) {
            hit = scan_next(scan, &state, p, end);
            if (!hit)
                break;
            line = memrchr(p, '\n', (size_t)(hit - p));
            line = line ? line + 1 : p;
        }
        s->line += count_lines(p, line);
        const uint8_t *newline = memchr(hit, '\n', (size_t)(end - hit));
        match_hit_line(s, line, (size_t)(newline - line), offset + (uint64_t)(line - from));
        s->line++;
        p = newline + 1;
        state = 0;
    }
    s->line += count_lines(p, end);
}

/* Examines a full carry buffer as a piece of a long line. Keeps its last bytes, so that a match
 * across two pieces is found. */
static void flush_piece(struct match_source *s)
{
    if (!s->in_long)
        match_hit_line(s, s->carry, s->carry_len, s->carry_offset);
    else
        match_hit_piece(s, s->carry, s->carry_len, s->carry_offset);
    s->in_long = true;
    memmove(s->carry, s->carry + s->carry_len - MATCH_OVERLAP, MATCH_OVERLAP);
    s->carry_len = MATCH_OVERLAP;
}

static void end_line(struct match_source *s)
{
    if (s->in_long)
        match_hit_piece(s, s->carry, s->carry_len, s->carry_offset);
    else
        match_hit_line(s, s->carry, s->carry_len, s->carry_offset);
    s->in_long = false;
    s->carry_len = 0;
    s->line++;
}

/* Appends bytes to the incomplete line in carry, up to its newline or end. Returns a pointer
 * behind the bytes taken. */
static const uint8_t *carry(struct match_source *s, const uint8_t *p, const uint8_t *end,
                            uint64_t offset)
{
    if (!s->carry && !(s->carry = malloc(MATCH_CARRY))) {
        s->m->no_memory = true;
        return end;
    }
    if (s->carry_len == 0)
        s->carry_offset = offset;
    while (p < end) {
        size_t room = MATCH_CARRY - s->carry_len, left = (size_t)(end - p);
        size_t n = left < room ? left : room;
        const uint8_t *newline = memchr(p, '\n', n);
        n = newline ? (size_t)(newline - p) : n;
        memcpy(s->carry + s->carry_len, p, n);
        s->carry_len += n;
        p += n;
        if (newline) {
            end_line(s);
            return p + 1;
        }
        if (s->carry_len == MATCH_CARRY)
            flush_piece(s);
    }
    return p;
}

void match_feed(struct match_source *s, const void *bytes, size_t len)
{
    const uint8_t *from = bytes, *p = from, *end = from + len;
    uint64_t offset = s->offset;
    if (len == 0)
        return;
    s->offset += len;
    if (s->carry_len > 0)
        p = carry(s, p, end, offset);
    const uint8_t *last = p < end ? memrchr(p, '\n', (size_t)(end - p)) : NULL;
    if (last) {
        scan_lines(s, p, last + 1, offset + (uint64_t)(p - from));
        p = last + 1;
    }
    if (p < end)
        carry(s, p, end, offset + (uint64_t)(p - from));
}

void match_close_source(struct match_source *s)
{
    if (s->carry_len > 0)
        end_line(s);
    s->following = NULL;
}
