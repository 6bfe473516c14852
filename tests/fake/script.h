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

/* Called first in a function: hangs, crashes, or returns its return code. */
static inline int script_enter(const char *variable, const char *function, int gpu)
{
    char text[64];
    const char *script = getenv(variable);
    /* Most calls are not in the script, and polls are many: they cost no more than this. */
    if (!script ||
        (!strstr(script, function) && !strstr(script, "hang=") && !strstr(script, "crash=")))
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
