/* SPDX-License-Identifier: Apache-2.0
 *
 * script: scripted values of the fake libraries: an environment variable "key=value;...". A
 * function's name as key sets its return code ("nvmlInit_v2=18"). "hang=FUNCTION" and
 * "crash=FUNCTION" make it hang or crash. A key with a GPU's number ("celsius.1=90") takes
 * precedence over one without.
 */
#ifndef HVD_TESTS_FAKE_SCRIPT_H
#define HVD_TESTS_FAKE_SCRIPT_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text behind key= into dst; NULL if the script has no such key. */
static inline const char *script_text(const char *variable, const char *key, char *dst, size_t size)
{
    const char *s = getenv(variable);
    size_t n = strlen(key);
    for (; s && *s; s += strcspn(s, ";"), s += *s == ';') {
        if (strncmp(s, key, n) == 0 && s[n] == '=') {
            snprintf(dst, size, "%.*s", (int)strcspn(s + n + 1, ";"), s + n + 1);
            return dst;
        }
    }
    return NULL;
}

static inline long long script_number(const char *variable, const char *key, int gpu, long long def)
{
    char text[64], full[80];
    snprintf(full, sizeof(full), "%s.%d", key, gpu);
    const char *value = script_text(variable, full, text, sizeof(text));
    if (!value)
        value = script_text(variable, key, text, sizeof(text));
    return value ? strtoll(value, NULL, 0) : def;
}

/* The next entry; NULL: there is none. */
static inline const char *script_next(const char *entry)
{
    const char *end = strchr(entry, ';');
    return end ? end + 1 : NULL;
}

/* Whether an entry may be about the function: its key begins with the first two letters of hang, of
 * crash or of the function's name. Ranks poll all the time, mostly by functions that are in no
 * entry: such a call does no more than this. */
static inline bool script_may_name(const char *script, const char *function)
{
    for (const char *s = script; s; s = script_next(s)) {
        if ((s[0] == function[0] && s[1] == function[1]) || (s[0] == 'h' && s[1] == 'a') ||
            (s[0] == 'c' && s[1] == 'r'))
            return true;
    }
    return false;
}

/* Called first in a function: hangs, crashes, or returns its return code. */
static inline int script_enter(const char *variable, const char *function, int gpu)
{
    char text[64];
    if (!script_may_name(getenv(variable), function))
        return 0;
    if (script_text(variable, "hang", text, sizeof(text)) && strcmp(text, function) == 0) {
        for (;;)
            pause();
    }
    if (script_text(variable, "crash", text, sizeof(text)) && strcmp(text, function) == 0) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    return (int)script_number(variable, function, gpu, 0);
}

#endif
