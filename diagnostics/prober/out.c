/* SPDX-License-Identifier: Apache-2.0
 *
 * out: see out.h.
 */
#include "diagnostics/prober/out.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/base/fd.h"

#define VALUE_MAX 4000
#define KEY_MAX   120

static int where = 1;

void out_to(int fd)
{
    where = fd;
}

static void line(const char *key, const char *fmt, va_list ap)
{
    char value[VALUE_MAX], text[KEY_MAX + 2 * VALUE_MAX + 4];
    vsnprintf(value, sizeof(value), fmt, ap);
    int head = snprintf(text, sizeof(text), "%.*s ", KEY_MAX, key);
    size_t n = (size_t)head;
    for (const char *s = value; *s; s++) {
        if (*s == '\n' || *s == '\\')
            text[n++] = '\\';
        text[n++] = *s == '\n' ? 'n' : *s;
    }
    text[n++] = '\n';
    fd_write_full(where, text, n, UINT64_MAX);
}

void out_put(const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    line(key, fmt, ap);
    va_end(ap);
}

void out_at(const char *list, int i, const char *key, const char *fmt, ...)
{
    char full[KEY_MAX];
    va_list ap;
    snprintf(full, sizeof(full), "%s.%d.%s", list, i, key);
    va_start(ap, fmt);
    line(full, fmt, ap);
    va_end(ap);
}
