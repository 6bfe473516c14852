/* SPDX-License-Identifier: Apache-2.0
 *
 * stamp: see stamp.h.
 */
#include "operator/objects/stamp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds since 1970 */
#define FIRST_S INT64_C(-62135596800)
#define LAST_S  INT64_C(253402300799)

/* Parses n digits at *p as a number in [min, max], then the byte `after` unless that is 0. False:
 * something else is at *p. */
static bool number(const char **p, int n, int min, int max, char after, int *ret)
{
    int v = 0;
    for (int i = 0; i < n; i++, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (**p - '0');
    }
    if (v < min || v > max || (after && **p != after))
        return false;
    *p += after != 0;
    *ret = v;
    return true;
}

/* Parses a fraction of a second such as ".123456789" as microseconds; 0 without one. False: a dot
 * without digits. */
static bool fraction(const char **p, int *ret_us)
{
    int scale = 100000, us = 0, digits = 0;
    *ret_us = 0;
    if (**p != '.')
        return true;
    for ((*p)++; **p >= '0' && **p <= '9'; (*p)++, digits++, scale /= 10)
        us += (**p - '0') * scale;
    *ret_us = us;
    return digits > 0;
}

static bool offset(const char **p, int *ret_s)
{
    int h, m, sign = **p == '-' ? -1 : 1;
    *ret_s = 0;
    if (**p == 'Z' || **p == 'z') {
        (*p)++;
        return true;
    }
    if (**p != '+' && **p != '-')
        return false;
    (*p)++;
    if (!number(p, 2, 0, 23, ':', &h) || !number(p, 2, 0, 59, '\0', &m))
        return false;
    *ret_s = sign * (h * 3600 + m * 60);
    return true;
}

int stamp_parse(const char *text, int64_t *ret_us)
{
    struct tm tm = {0};
    const char *p = text;
    int us, east;
    if (!number(&p, 4, 1, 9999, '-', &tm.tm_year) || !number(&p, 2, 1, 12, '-', &tm.tm_mon) ||
        !number(&p, 2, 1, 31, '\0', &tm.tm_mday) || !*p || !strchr("Tt ", *p++) ||
        !number(&p, 2, 0, 23, ':', &tm.tm_hour) || !number(&p, 2, 0, 59, ':', &tm.tm_min) ||
        !number(&p, 2, 0, 60, '\0', &tm.tm_sec) || !fraction(&p, &us) || !offset(&p, &east) || *p)
        return -EINVAL;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    int64_t s = (int64_t)timegm(&tm) - east;
    if (s < FIRST_S || s > LAST_S)
        return -EINVAL;
    *ret_us = s * STAMP_SECOND + us;
    return 0;
}

const char *stamp_text(int64_t us, char dst[STAMP_MAX])
{
    struct tm tm;
    int64_t s = us / STAMP_SECOND, left = us % STAMP_SECOND;
    if (left < 0) {
        s--;
        left += STAMP_SECOND;
    }
    if (s < FIRST_S || s > LAST_S)
        s = left = 0;
    time_t t = (time_t)s;
    gmtime_r(&t, &tm);
    /* strftime's %Y has no leading zeros. */
    snprintf(dst, STAMP_MAX, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ",
             (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)(tm.tm_mon + 1) % 100,
             (unsigned)tm.tm_mday % 100, (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100,
             (unsigned)tm.tm_sec % 100, (unsigned)left % 1000000);
    return dst;
}
