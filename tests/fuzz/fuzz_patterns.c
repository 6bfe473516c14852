/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_patterns: a file of patterns of any bytes: every word of an accepted set must be in its
 * automaton, and a refusal must name the line. Regular expressions are not compiled: they
 * are always our own.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/match_scan.h"
#include "diagnostics/patterns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct patterns *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct pattern *one = &p->v[i];
        if (!one->say || one->nregex < 1 || patterns_find(p, one->id) != one)
            abort();
        for (int k = 0; k < one->nregex; k++) {
            const uint8_t *word = (const uint8_t *)one->regex[k].literal;
            uint32_t state = 0;
            if (!scan_next(p->scan, &state, word, word + strlen(one->regex[k].literal)))
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct patterns *p = NULL;
    struct err err = {0};
    if (patterns_parse((const char *)data, size, "fuzz", &p, &err) == 0)
        check(p);
    else if (p || !err.msg[0])
        abort();
    patterns_destroy(p);
    return 0;
}
