/* SPDX-License-Identifier: Apache-2.0
 *
 * words: optional texts on the heap, NULL when empty: there are many objects, and most have no
 * text.
 */
#ifndef HVD_BASE_WORDS_H
#define HVD_BASE_WORDS_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 1023 /* longer texts are cut: they may come from outside */

/* Replaces *dst by a copy of text, which may be NULL. -ENOMEM: nothing is changed. */
static inline int words_set(char **dst, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    char *copy = NULL;
    if (n > WORDS_MAX)
        n = WORDS_MAX;
    if (n > 0 && !(copy = malloc(n + 1)))
        return -ENOMEM;
    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    free(*dst);
    *dst = copy;
    return 0;
}

/* A copy of any length, which the caller frees; NULL gives NULL. No memory: NULL, and *ok is set to
 * false. */
static inline char *words_copy(const char *text, bool *ok)
{
    char *copy = text ? strdup(text) : NULL;
    *ok &= !text || copy;
    return copy;
}

static inline const char *words(const char *text)
{
    return text ? text : "";
}

#endif
