/* SPDX-License-Identifier: Apache-2.0
 *
 * check: see check.h.
 */
#include "diagnostics/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "diagnostics/proc.h"

static const char *const status_names[] = {"pass", "info", "warn", "fail", "skip", "error"};
static const char *const group_names[] = {
    "host",    "limits",  "memory",     "cpu",       "gpu",     "nccl",   "mpi",
    "network", "storage", "kubernetes", "framework", "workers", "active",
};
static const char *const action_names[] = {
    "none",      "container-option", "environment",  "install",    "version",
    "remove",    "recreate",         "free-space",   "network",    "host",
    "reset-gpu", "reboot",           "replace-node", "permission", "job",
};
static const char *const place_names[] = {"docker", "k8s", "host"};

_Static_assert(sizeof(status_names) / sizeof(*status_names) == CHECK_ERROR + 1, "a name each");
_Static_assert(sizeof(group_names) / sizeof(*group_names) == GROUPS, "a name each");
_Static_assert(sizeof(action_names) / sizeof(*action_names) == ACTIONS, "a name each");

const char *check_status_name(enum check_status status)
{
    return status_names[status];
}

const char *check_group_name(enum check_group group)
{
    return group_names[group];
}

const char *check_action_name(enum check_action action)
{
    return action_names[action];
}

const char *fix_place_name(enum fix_place place)
{
    return place_names[place];
}

enum fix_place fix_place_of(const struct machine *m)
{
    if (machine_env(m, "KUBERNETES_SERVICE_HOST"))
        return FIX_K8S;
    return proc_in_container(m) ? FIX_DOCKER : FIX_HOST;
}

/* Bytes of the UTF-8 character at s; 0: not UTF-8, or a C1 control character, which terminals
 * interpret. */
static size_t character(const unsigned char *s)
{
    static const unsigned least[] = {0, 0, 0xa0, 0x800, 0x10000};
    size_t n = *s < 0x80 ? 1 : *s >> 5 == 6 ? 2 : *s >> 4 == 14 ? 3 : *s >> 3 == 30 ? 4 : 0;
    unsigned code = n < 2 ? *s : *s & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (!utf8_inside(s[i]))
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

void check_clean(char *text)
{
    for (unsigned char *s = (unsigned char *)text; *s;) {
        size_t n = character(s);
        if (n == 0)
            *s = '?';
        else if (*s < ' ' || *s == 0x7f)
            *s = ' ';
        s += n ? n : 1;
    }
}

static void format(char *dst, size_t size, const char *fmt, va_list ap)
{
    vsnprintf(dst, size, fmt, ap);
    check_clean(dst);
}

static void set(struct result *r, enum check_status status, const char *fmt, va_list ap)
{
    r->status = status;
    format(r->summary, sizeof(r->summary), fmt, ap);
    if (!r->summary[0]) /* the text is empty */
        snprintf(r->summary, sizeof(r->summary), "(nothing)");
}

#define RESULT_STATUS(name, value)                                                                 \
    void result_##name(struct result *r, const char *fmt, ...)                                     \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        set(r, value, fmt, ap);                                                                    \
        va_end(ap);                                                                                \
    }

RESULT_STATUS(pass, CHECK_PASS)
RESULT_STATUS(info, CHECK_INFO)
RESULT_STATUS(warn, CHECK_WARN)
RESULT_STATUS(fail, CHECK_FAIL)
RESULT_STATUS(skip, CHECK_SKIP)
RESULT_STATUS(error, CHECK_ERROR)

#define RESULT_FIELD(name)                                                                         \
    void result_##name(struct result *r, const char *fmt, ...)                                     \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, fmt);                                                                         \
        format(r->name, sizeof(r->name), fmt, ap);                                                 \
        va_end(ap);                                                                                \
    }

RESULT_FIELD(observed)
RESULT_FIELD(expected)
RESULT_FIELD(why)

void result_fix(struct result *r, enum fix_place place, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    format(r->fix[place], sizeof(r->fix[place]), fmt, ap);
    va_end(ap);
}

void result_action(struct result *r, enum check_action action)
{
    r->action = action;
}

bool result_needs(struct result *r, const struct answer *a, const char *what)
{
    char text[128];
    if (a->state == ANSWER_OK)
        return true;
    answer_describe(a, text, sizeof(text));
    if (a->state == ANSWER_TIMEOUT || a->state == ANSWER_CRASHED) {
        result_warn(r, "looking at %s %s", what, text);
        result_observed(r, "%s", text);
        result_expected(r, "an answer");
    } else {
        result_skip(r, "%s: %s", what, text);
    }
    return false;
}

void check_append(char *dst, size_t size, const char *sep, const char *fmt, ...)
{
    static const char more[] = "...";
    size_t len = strlen(dst), seplen = len ? strlen(sep) : 0;
    char item[RESULT_TEXT];
    va_list ap;
    if (len >= sizeof(more) - 1 && strcmp(dst + len - (sizeof(more) - 1), more) == 0)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(item, sizeof(item), fmt, ap);
    va_end(ap);
    bool fits =
        n >= 0 && (size_t)n < sizeof(item) && len + 2 * seplen + (size_t)n + sizeof(more) <= size;
    if (fits || !len || len + seplen + sizeof(more) <= size)
        snprintf(dst + len, size - len, "%s%s", len ? sep : "", fits || !len ? item : more);
}

char *check_bytes(char *dst, size_t size, uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    size_t u = 0;
    while (x >= 1023.95 && u + 1 < sizeof(units) / sizeof(*units)) {
        x /= 1024;
        u++;
    }
    bool whole = u == 0 || x >= 99.95 || x - (double)(int64_t)x < 0.05;
    snprintf(dst, size, "%.*f %s", whole ? 0 : 1, x, units[u]);
    return dst;
}
