/* SPDX-License-Identifier: Apache-2.0
 *
 * libs: see libs.h.
 */
#include "diagnostics/checks/libs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/rules.h"

#define LIST "lib"

const char *libs_version(const struct answer *a, int i)
{
    const char *own = answer_str_at(a, LIST, i, "version", NULL);
    return own ? own : answer_str_at(a, LIST, i, "text", NULL);
}

bool libs_reachable(const struct answer *a, int i)
{
    const char *how = answer_str_at(a, LIST, i, "how", "");
    return strcmp(how, "Python package") != 0 && strcmp(how, "other folder") != 0 &&
           strcmp(how, "conda") != 0;
}

int libs_major(const char *version)
{
    return version ? (int)strtol(version, NULL, 10) : 0;
}

const char *libs_list(const struct answer *a, char *dst, size_t size)
{
    size_t at = 0;
    int n = answer_count(a, LIST);
    dst[0] = '\0';
    for (int i = 0; i < n && at < size; i++) {
        const char *version = libs_version(a, i);
        at += (size_t)snprintf(dst + at, size - at, "%s%s in %s", i ? ", " : "",
                               version ? version : "unknown version",
                               answer_str_at(a, LIST, i, "path", "?"));
    }
    return dst;
}

static bool same(const char *a, const char *b, bool majors)
{
    return majors ? libs_major(a) == libs_major(b) : version_compare(a, b) == 0;
}

int libs_distinct(const struct answer *a, bool majors, bool only_reachable)
{
    int n = answer_count(a, LIST), distinct = 0;
    for (int i = 0; i < n; i++) {
        const char *version = libs_version(a, i);
        bool fresh = version && (!only_reachable || libs_reachable(a, i));
        for (int k = 0; k < i && fresh; k++) {
            const char *other = libs_version(a, k);
            if (other && (!only_reachable || libs_reachable(a, k)) && same(version, other, majors))
                fresh = false;
        }
        distinct += fresh;
    }
    return distinct;
}

bool libs_absent(const struct answer *a)
{
    const char *error = answer_str(a, "error", "");
    return !answer_has(a, "path") && answer_count(a, LIST) == 0 &&
           (*error == '\0' || strstr(error, "No such file"));
}

const char *libs_trouble(const struct answer *a)
{
    const char *state = answer_str(a, "load", NULL), *error = answer_str(a, "error", NULL);
    if (state)
        return state;
    return error && !strstr(error, "No such file") ? error : NULL;
}
