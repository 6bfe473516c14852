/* SPDX-License-Identifier: Apache-2.0
 *
 * words: a text that is owned, NULL where there is none: most objects have nothing to say, and are
 * many.
 */
#ifndef HVD_BASE_WORDS_H
#define HVD_BASE_WORDS_H

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 1023 /* the rest is left out: strangers write them too */

/* A copy of text, which may be NULL, in the place of what was there. -ENOMEM: nothing is changed.
 */
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

/* A copy of any length, to be freed; NULL of NULL. No memory: NULL, and *ok is false. */
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
