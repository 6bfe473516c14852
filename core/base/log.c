/* SPDX-License-Identifier: Apache-2.0
 *
 * log: see log.h.
 */
#include "core/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static _Atomic int g_level = LOG_WARN;
static char g_tag[32] = "hvd";

static const char *const words[] = {"error", "warn", "info", "debug", "trace"};

void log_set_tag(const char *tag)
{
    snprintf(g_tag, sizeof(g_tag), "%s", tag);
}

void log_set_level(enum log_level level)
{
    atomic_store_explicit(&g_level, level, memory_order_relaxed);
}

enum log_level log_level(void)
{
    return (enum log_level)atomic_load_explicit(&g_level, memory_order_relaxed);
}

int log_level_parse(const char *word, enum log_level *ret_level)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(word, words[i]) == 0 ||
            (i == LOG_WARN && strcasecmp(word, "warning") == 0)) {
            *ret_level = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level > log_level())
        return;
    char line[2048];
    int len = snprintf(line, sizeof(line), "%s: %s: ", g_tag, words[level]);
    va_list ap;
    va_start(ap, fmt);
    int body = vsnprintf(line + len, sizeof(line) - (size_t)len - 1, fmt, ap);
    va_end(ap);
    size_t room = sizeof(line) - (size_t)len - 2;
    len += body < 0 ? 0 : (size_t)body > room ? (int)room : body;
    line[len++] = '\n';
    /* A failed write to stderr cannot be reported anywhere. */
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)len);
    (void)ignored;
}
