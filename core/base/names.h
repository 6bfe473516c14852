/* SPDX-License-Identifier: Apache-2.0
 *
 * names: the names of one thing in one string, as in a table of options: "-v|--verbose". Any
 * thread.
 */
#ifndef HVD_BASE_NAMES_H
#define HVD_BASE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Returns whether the first n bytes of word are one of the names. */
static inline bool names_have(const char *names, const char *word, size_t n)
{
    while (*names) {
        size_t len = strcspn(names, "|");
        if (len == n && strncmp(names, word, n) == 0)
            return true;
        names += len + (names[len] == '|');
    }
    return false;
}

#endif
