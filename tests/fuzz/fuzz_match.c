/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_match: a log of any bytes, matched twice, in pieces of two sizes; the result as text and
 * JSON. The first byte chooses the first size. The result must have lines and offsets within the
 * input, and its first finding must not depend on the size.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/match.h"
#include "diagnostics/match_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct patterns *patterns;
static FILE *nowhere;

static void check(const struct match_result *r, size_t size)
{
    char verdict[600];
    if (r->bytes != size || r->lines > size + 1)
        abort();
    for (size_t i = 0; i < r->n; i++) {
        const struct match_finding *f = &r->findings[i];
        if (f->line < 1 || f->offset > size || f->count < 1 || strlen(f->text) >= sizeof(f->text))
            abort();
    }
    match_print(r, nowhere);
    match_verdict_text(r, verdict, sizeof(verdict));
    json_t *j = match_json(r);
    if (!j)
        abort();
    json_decref(j);
}

/* Returns the first finding's pattern; NULL: nothing was found. */
static const struct pattern *run(const uint8_t *data, size_t size, size_t piece)
{
    struct match_opts opts = {.patterns = patterns, .failed = piece % 2, .as_cause = "xid-63"};
    struct match *m = NULL;
    struct match_result *r = NULL;
    if (match_create(&opts, &m, NULL) < 0)
        abort();
    struct match_source *s = match_open_source(m, "rank.3/stderr", -1);
    for (size_t at = 0; at < size; at += piece)
        match_feed(s, data + at, size - at < piece ? size - at : piece);
    match_close_source(s);
    if (match_finish(m, &r, NULL) < 0)
        abort();
    check(r, size);
    const struct pattern *first = r->n ? r->findings[0].pattern : NULL;
    match_result_destroy(r);
    match_destroy(m);
    return first;
}

/* Whether a line is longer than MATCH_LINE. Such a line is searched in windows, whose places depend
 * on the pieces. */
static bool has_long_line(const uint8_t *p, size_t size)
{
    size_t run = 0;
    for (size_t i = 0; i < size && run <= MATCH_LINE; i++)
        run = p[i] == '\n' ? 0 : run + 1;
    return run > MATCH_LINE;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!patterns && patterns_create(&patterns, NULL) < 0)
        abort();
    if (!nowhere && !(nowhere = fopen("/dev/null", "w")))
        abort();
    if (size < 1)
        return 0;
    size_t piece = (size_t)data[0] + 1, odd = piece % 2;
    const struct pattern *a = run(data + 1, size - 1, piece),
                         *b = run(data + 1, size - 1, 4096 + odd);
    if (a != b && !has_long_line(data + 1, size - 1))
        abort();
    return 0;
}
