/* SPDX-License-Identifier: Apache-2.0
 *
 * nearest: see nearest.h.
 */
#include "core/base/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define WORD_MAX 64

static int min3(int a, int b, int c)
{
    int m = a < b ? a : b;
    return m < c ? m : c;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Needs only the last three rows of the dynamic-programming table. */
static int distance(const char *a, size_t n, const char *b, size_t m)
{
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= m; j++)
        above[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int cost = !same(a[i - 1], b[j - 1]);
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + cost);
            if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
        int *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[m];
}

void nearest_init(struct nearest *n, const char *word)
{
    *n = (struct nearest){.word = word, .distance = INT_MAX};
}

void nearest_try(struct nearest *n, const char *candidate)
{
    size_t a = strlen(n->word), b = strlen(candidate);
    if (a > WORD_MAX || b > WORD_MAX)
        return;
    int d = distance(n->word, a, candidate, b);
    if (d < n->distance) {
        n->distance = d;
        n->best = candidate;
    }
}

const char *nearest_best(const struct nearest *n)
{
    if (!n->best)
        return NULL;
    int len = (int)strlen(n->best);
    return n->distance <= (len < 6 ? 1 : len / 3) ? n->best : NULL;
}
