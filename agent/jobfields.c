/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfields: see jobfields.h.
 */
#include "agent/jobfields.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 40 /* a longer word is close to nothing */

static const struct field {
    const char *parent, *name;
    enum jobfield use;
} fields[] = {
    {"spec", "workers", JOBFIELD_USED},
    {"spec", "minWorkers", JOBFIELD_USED},
    {"spec", "maxWorkers", JOBFIELD_USED},
    {"spec", "slotsPerWorker", JOBFIELD_USED},
    {"spec", "gang", JOBFIELD_CLUSTER_MAP},
    {"spec", "doctor", JOBFIELD_USED_MAP},
    {"spec", "runPolicy", JOBFIELD_CLUSTER_MAP},
    {"spec", "template", JOBFIELD_USED},
    {"spec.gang", "backend", JOBFIELD_CLUSTER},
    {"spec.gang", "timeoutSeconds", JOBFIELD_CLUSTER},
    {"spec.gang", "probeSeconds", JOBFIELD_CLUSTER},
    {"spec.doctor", "level", JOBFIELD_CLUSTER},
    {"spec.doctor", "policy", JOBFIELD_USED},
    {"spec.runPolicy", "cleanPodPolicy", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "ttlSecondsAfterFinished", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "activeDeadlineSeconds", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "backoffLimit", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "suspend", JOBFIELD_CLUSTER},
    {"spec.runPolicy", "managedBy", JOBFIELD_CLUSTER},
};

#define NFIELDS (sizeof(fields) / sizeof(fields[0]))

enum jobfield jobfield_find(const char *parent, const char *name)
{
    for (size_t i = 0; i < NFIELDS; i++)
        if (strcmp(fields[i].parent, parent) == 0 && strcmp(fields[i].name, name) == 0)
            return fields[i].use;
    return JOBFIELD_UNKNOWN;
}

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* How many letters to insert, drop or replace make b of a; case does not count. */
static size_t distance(const char *a, const char *b)
{
    size_t row[WORD_MAX + 1], n = strlen(b);
    if (n > WORD_MAX || strlen(a) > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t other = tolower((unsigned char)a[i - 1]) != tolower((unsigned char)b[j - 1]);
            size_t here = least(row[j] + 1, row[j - 1] + 1, diagonal + other);
            diagonal = row[j];
            row[j] = here;
        }
    }
    return row[n];
}

void jobfield_hint(const char *parent, const char *name, char *dst, size_t size)
{
    const struct field *near = NULL;
    size_t best = strlen(name) / 3 + 1; /* a third of the letters may be wrong */
    size_t n = (size_t)snprintf(dst, size, "no such field; there are");
    for (size_t i = 0; i < NFIELDS; i++) {
        if (strcmp(fields[i].parent, parent) != 0)
            continue;
        if (n < size)
            n += (size_t)snprintf(dst + n, size - n, " %s", fields[i].name);
        size_t d = distance(name, fields[i].name);
        if (d < best) {
            best = d;
            near = &fields[i];
        }
    }
    if (near)
        snprintf(dst, size, "no such field; did you mean %s?", near->name);
}
