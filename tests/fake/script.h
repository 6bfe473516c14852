/* SPDX-License-Identifier: Apache-2.0
 *
 * script: what the fake libraries of tests/fake shall say: an environment variable "key=value;...".
 * A key of a function is its return code ("nvmlInit_v2=18"); "hang=FUNCTION" and "crash=FUNCTION"
 * do so there; a key with a GPU's number ("celsius.1=90") counts before one without.
 */
#ifndef HVD_TESTS_FAKE_SCRIPT_H
#define HVD_TESTS_FAKE_SCRIPT_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The text behind key=, into dst; NULL where the script does not have it. */
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

/* At the start of a function: hangs, crashes, or its return code. */
static inline int script_enter(const char *variable, const char *function, int gpu)
{
    char text[64];
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
