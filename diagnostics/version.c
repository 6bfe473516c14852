/* SPDX-License-Identifier: Apache-2.0
 *
 * version: compares version strings; see rules.h. Any text is accepted; text without a number
 * compares as 0. Any thread.
 */
#include <ctype.h>
#include <limits.h>
#include <string.h>

#include "diagnostics/rules.h"

/* Parses the next number; saturates. */
static int number(const char **s)
{
    int n = 0;
    for (; isdigit((unsigned char)**s); (*s)++)
        n = n > INT_MAX / 10 - 1 ? INT_MAX - 10 : n * 10 + (**s - '0');
    return n;
}

static const char *skip_v(const char *s)
{
    while (*s == ' ')
        s++;
    return (*s == 'v' || *s == 'V') && isdigit((unsigned char)s[1]) ? s + 1 : s;
}

/* The text behind the dotted numbers. */
static const char *suffix_of(const char *s)
{
    while (isdigit((unsigned char)*s)) {
        number(&s);
        if (s[0] != '.' || !isdigit((unsigned char)s[1]))
            break;
        s++;
    }
    return s;
}

/* A pre-release suffix ("rc1", ".dev0", "~beta") makes a version older. "+cuda13.0", "-1" and
 * ".post1" do not. Returns the suffix, NULL when there is none. */
static const char *prerelease(const char *s)
{
    while (*s == '.' || *s == '-' || *s == '_' || *s == '~')
        s++;
    if (!isalpha((unsigned char)*s) || strncmp(s, "post", 4) == 0)
        return NULL;
    return s;
}

static int compare_prerelease(const char *a, const char *b)
{
    if (!a || !b)
        return !a && !b ? 0 : a ? -1 : 1;
    while (isalpha((unsigned char)*a) && *a == *b)
        a++, b++;
    bool in_a = isalpha((unsigned char)*a), in_b = isalpha((unsigned char)*b);
    if (in_a || in_b)
        return in_a && in_b ? *a - *b : in_a - in_b;
    int x = number(&a), y = number(&b);
    return (x > y) - (x < y);
}

int version_compare(const char *a, const char *b)
{
    a = skip_v(a);
    b = skip_v(b);
    const char *end_a = suffix_of(a), *end_b = suffix_of(b);
    while (a < end_a || b < end_b) {
        int x = a < end_a ? number(&a) : 0, y = b < end_b ? number(&b) : 0;
        if (x != y)
            return x < y ? -1 : 1;
        a += a < end_a;
        b += b < end_b;
    }
    return compare_prerelease(prerelease(end_a), prerelease(end_b));
}
