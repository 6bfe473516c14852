/* SPDX-License-Identifier: Apache-2.0
 *
 * health: see health.h. Sources with the same status share a line: if the API server is away, all
 * of them fail within seconds.
 */
#include "operator/api/health.h"

#include <stdio.h>
#include <string.h>

#include "core/base/clock.h"

#define NAMES_MAX 4 /* sources that a line names */

static bool fails(const struct health_source *s)
{
    return s->problem->text[0] != '\0';
}

bool health_goes_without(const struct health_source *source)
{
    return source->need == HEALTH_OPTIONAL && fails(source) && source->problem->status == 403;
}

/* Does this status concern all requests? Then it is reported once, although further sources notice
 * it later. */
static bool is_common(long status)
{
    return status == 0 || status == 401;
}

/* An API server that comes back answers with other errors for a moment, which are not reported: the
 * end is that of the problem that was. */
static void note_end(struct health_state *st)
{
    if (st->said == 0 && st->told != 0)
        *st = (struct health_state){
            .status = st->told_status, .since = st->told_since, .said = st->told};
    st->over = st->said != 0;
    if (!st->over)
        *st = (struct health_state){0};
}

static void note(struct health_state *st, const struct health_source *s, uint64_t now)
{
    const struct health_state before = *st;
    if (!fails(s)) {
        note_end(st);
        return;
    }
    st->over = false;
    if (before.since != 0 && before.status == s->problem->status)
        return;
    *st = (struct health_state){.status = s->problem->status,
                                .since = now,
                                .told_status = before.told_status,
                                .told_since = before.told_since,
                                .told = before.told};
    if (before.said == 0)
        return;
    st->told_status = before.status;
    st->told_since = before.since;
    st->told = before.said;
}

static bool has(const struct health_state *st, long status)
{
    return st->since != 0 && st->status == status;
}

/* The sources of h that have the status; over: those whose problem is over. */
struct group {
    const struct health_source *first;
    char names[256];
    int n;
    uint64_t since; /* of the oldest problem */
};

static struct group group_of(const struct health *h, const struct health_source *sources, int n,
                             long status, bool over)
{
    struct group g = {0};
    size_t len = 0;
    for (int i = 0; i < n; i++) {
        const struct health_state *st = &h->states[i];
        if (!has(st, status) || st->over != over)
            continue;
        if (g.n == 0 || st->since < g.since)
            g.since = st->since;
        if (g.n++ == 0)
            g.first = &sources[i];
        if (g.n <= NAMES_MAX && len < sizeof(g.names))
            len += (size_t)snprintf(g.names + len, sizeof(g.names) - len, "%s%.60s",
                                    g.n > 1 ? ", " : "", sources[i].what);
    }
    if (g.n > NAMES_MAX && len < sizeof(g.names))
        snprintf(g.names + len, sizeof(g.names) - len, " and %d more", g.n - NAMES_MAX);
    return g;
}

static const char *advice(long status)
{
    static const struct {
        long status;
        const char *text;
    } table[] = {
        {0, "Check its address, its certificate, and the network"},
        {401, "Check the token or the certificate of this operator's account"},
        {403, "Check the roles of this operator's account: k8s/ has them"},
        {404, "Check that k8s/crd is applied"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (table[i].status == status)
            return table[i].text;
    return "Check the API server";
}

/* Is a report of this status due? */
static bool is_due(const struct health *h, const struct health_source *sources, int n, long status,
                   uint64_t now)
{
    uint64_t grace = (is_common(status) ? HEALTH_GRACE_S : HEALTH_REFUSED_S) * CLOCK_S;
    for (int i = 0; i < n; i++) {
        const struct health_state *st = &h->states[i];
        if (!has(st, status) || st->over)
            continue;
        if (st->said == 0 && now - st->since >= grace)
            return true;
        if (st->said != 0 && !health_goes_without(&sources[i]) &&
            now - st->said >= HEALTH_REPEAT_S * CLOCK_S)
            return true;
    }
    return false;
}

static void report(struct health *h, const struct health_source *sources, int n, long status,
                   uint64_t now, health_say_f *say, void *arg)
{
    struct group g = group_of(h, sources, n, status, false);
    bool needed = false;
    char line[1400];
    for (int i = 0; i < n; i++) {
        struct health_state *st = &h->states[i];
        if (!has(st, status) || st->over)
            continue;
        st->said = now;
        needed |= !health_goes_without(&sources[i]);
    }
    snprintf(line, sizeof(line), "API server %.200s, for %llu s, %s: %s. %s. %s", h->server,
             (unsigned long long)((now - g.since) / CLOCK_S), g.names, g.first->problem->text,
             needed ? "Until this works jobs may wait; ranks train on"
                    : "The operator works without this, see its README",
             advice(status));
    say(arg, line);
}

/* Reports the end once no source that the operator needs has the status any more, in one line for
 * all. */
static void report_end(struct health *h, const struct health_source *sources, int n, long status,
                       uint64_t now, health_say_f *say, void *arg)
{
    struct group g = group_of(h, sources, n, status, true);
    char line[800];
    if (g.n == 0)
        return;
    for (int i = 0; i < n; i++)
        if (has(&h->states[i], status) && !h->states[i].over && !health_goes_without(&sources[i]))
            return;
    snprintf(line, sizeof(line), "API server %.200s works again, after %llu s: %s", h->server,
             (unsigned long long)((now - g.since) / CLOCK_S), g.names);
    for (int i = 0; i < n; i++)
        if (h->states[i].over && has(&h->states[i], status))
            h->states[i] = (struct health_state){0};
    say(arg, line);
}

/* Sources that notice late what was reported already belong to that report. */
static void join(struct health *h, int n, long status)
{
    uint64_t said = 0;
    for (int i = 0; i < n; i++)
        if (has(&h->states[i], status) && h->states[i].said > said)
            said = h->states[i].said;
    for (int i = 0; i < n; i++)
        if (has(&h->states[i], status))
            h->states[i].said = said;
}

void health_step(struct health *h, const struct health_source *sources, int n, uint64_t now,
                 health_say_f *say, void *arg)
{
    n = n < HEALTH_SOURCES ? n : HEALTH_SOURCES;
    for (int i = 0; i < n; i++)
        note(&h->states[i], &sources[i], now);
    for (int i = 0; i < n; i++) {
        if (h->states[i].since == 0)
            continue;
        long status = h->states[i].status;
        if (is_common(status))
            join(h, n, status);
        if (is_due(h, sources, n, status, now))
            report(h, sources, n, status, now, say, arg);
        report_end(h, sources, n, status, now, say, arg);
    }
}

bool health_ready(const struct health *h, const struct health_source *sources, int n, uint64_t now,
                  struct buf *ret)
{
    bool ready = true;
    n = n < HEALTH_SOURCES ? n : HEALTH_SOURCES;
    for (int i = 0; i < n; i++) {
        const struct health_source *s = &sources[i];
        uint64_t since = h->states[i].since;
        if (health_goes_without(s))
            continue;
        bool lasts = fails(s) && since != 0 && now - since > h->unready_after;
        if (!s->there || (lasts && s->need == HEALTH_ALWAYS))
            ready = false;
    }
    for (int i = 0; i < n && !ready; i++) {
        const struct health_source *s = &sources[i];
        char line[700];
        if (health_goes_without(s) || (s->there && !fails(s)))
            continue;
        int len = snprintf(line, sizeof(line), "%.100s: %s%s%s\n", s->what,
                           s->there ? "" : "not read yet", !s->there && fails(s) ? ": " : "",
                           s->problem->text);
        buf_put(ret, line, (size_t)len);
    }
    return ready;
}
