/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: see explain.h.
 */
#include "agent/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/preflight.h"
#include "agent/printer.h"
#include "core/base/log.h"

static const char *const stream_names[FRAME_STREAMS] = {"stdout", "stderr"};

void explain_init(struct explain *e, int nranks, const char *dir)
{
    *e = (struct explain){.nranks = nranks, .first_ranks = nranks, .dir = dir, .reads = true};
}

/* Returns whether output can be scanned. Makes the matcher at the first output, because that takes
 * milliseconds. */
static bool get_ready(struct explain *e)
{
    struct err err;
    if (e->match || !e->reads)
        return e->reads;
    e->sources = calloc((size_t)e->nranks, sizeof(*e->sources));
    int rc = e->sources ? match_create(NULL, &e->match, &err) : err_set(&err, ENOMEM, "no memory");
    if (rc < 0)
        log_warn("the ranks' output is not searched for causes of failures: %s", err_text(&err));
    e->reads = rc == 0;
    return e->reads;
}

void explain_fini(struct explain *e)
{
    match_destroy(e->match);
    free(e->sources);
    *e = (struct explain){0};
}

void explain_grow(struct explain *e, int nranks)
{
    if (nranks <= e->nranks || !e->reads)
        return;
    if (e->sources) {
        struct match_source *(*grown)[FRAME_STREAMS] =
            realloc(e->sources, (size_t)nranks * sizeof(*grown));
        if (!grown)
            return;
        memset(grown + e->nranks, 0, (size_t)(nranks - e->nranks) * sizeof(*grown));
        e->sources = grown;
    }
    e->nranks = nranks;
}

void explain_feed(struct explain *e, const struct frame *frame)
{
    if (frame->rank >= (uint32_t)e->nranks || !get_ready(e))
        return;
    struct match_source **s = &e->sources[frame->rank][frame->stream];
    if (!*s) {
        char name[600], folder[PRINTER_FOLDER];
        printer_rank_folder(e->first_ranks, (int)frame->rank, folder);
        if (e->dir)
            snprintf(name, sizeof(name), "%s/%s/%s", e->dir, folder, stream_names[frame->stream]);
        else
            snprintf(name, sizeof(name), "rank %u %s", frame->rank, stream_names[frame->stream]);
        *s = match_open_source(e->match, name, (int)frame->rank);
    }
    if (*s)
        match_feed(*s, frame->data, frame->len);
}

static void fill(const struct match_finding *f, struct explanation *ret)
{
    snprintf(ret->cause, sizeof(ret->cause), "%s (%s)", f->say, f->pattern->id);
    snprintf(ret->where, sizeof(ret->where), "%.280s, line %llu", f->source,
             (unsigned long long)f->line);
    snprintf(ret->line, sizeof(ret->line), "%s", f->text);
    snprintf(ret->fix, sizeof(ret->fix), "%s", finding_fix(f->pattern->fix));
}

bool explain_failure(struct explain *e, struct explanation *ret)
{
    struct match_result *r = NULL;
    bool found = false;
    if (!e->match)
        return false;
    match_set_failed(e->match);
    for (int i = 0; i < e->nranks; i++)
        for (int s = 0; s < FRAME_STREAMS; s++)
            if (e->sources[i][s])
                match_close_source(e->sources[i][s]);
    if (match_finish(e->match, &r, NULL) == 0 && r->verdict == MATCH_FOUND && r->n > 0) {
        fill(&r->findings[0], ret);
        found = true;
    }
    match_result_destroy(r);
    return found;
}
