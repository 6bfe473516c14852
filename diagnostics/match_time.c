/* SPDX-License-Identifier: Apache-2.0
 *
 * match_time: see match_time.h.
 */
#include "diagnostics/match_time.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND 1000000000LL

static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* A cursor over NUL-terminated text. After a step fails, all later steps fail. */
struct cursor {
    const char *p;
    bool ok;
};

static int digits(struct cursor *c, int min, int max)
{
    int value = 0, n = 0;
    while (c->ok && n < max && isdigit((unsigned char)*c->p)) {
        value = value * 10 + (*c->p++ - '0');
        n++;
    }
    c->ok = c->ok && n >= min;
    return value;
}

static void expect(struct cursor *c, const char *any)
{
    c->ok = c->ok && *c->p && strchr(any, *c->p);
    if (c->ok)
        c->p++;
}

static void blanks(struct cursor *c)
{
    while (c->ok && *c->p == ' ')
        c->p++;
}

static int month_name(struct cursor *c)
{
    for (int m = 0; c->ok && m < 12; m++) {
        if (strncmp(c->p, months + 3 * m, 3) == 0) {
            c->p += 3;
            return m + 1;
        }
    }
    c->ok = false;
    return 1;
}

/* hh:mm:ss and up to nine digits of fraction. */
static int64_t clock_time(struct cursor *c)
{
    int h = digits(c, 1, 2);
    expect(c, ":");
    int m = digits(c, 2, 2);
    expect(c, ":");
    int s = digits(c, 2, 2);
    c->ok = c->ok && h < 24 && m < 60 && s <= 60;
    int64_t ns = ((h * 60LL + m) * 60 + s) * SECOND;
    if (c->ok && (*c->p == '.' || *c->p == ',') && isdigit((unsigned char)c->p[1])) {
        int64_t unit = SECOND / 10;
        for (c->p++; isdigit((unsigned char)*c->p); c->p++, unit /= 10)
            ns += (*c->p - '0') * unit;
    }
    return ns;
}

/* Parses Z, +hh:mm or -hhmm. Returns the nanoseconds to add to get UTC. */
static int64_t zone(struct cursor *c)
{
    if (!c->ok || *c->p == 'Z') {
        c->p += c->ok;
        return 0;
    }
    if ((*c->p != '+' && *c->p != '-') || !isdigit((unsigned char)c->p[1]))
        return 0;
    struct cursor z = {c->p + 1, true};
    int h = digits(&z, 2, 2);
    if (*z.p == ':')
        z.p++;
    int m = digits(&z, 2, 2);
    if (!z.ok)
        return 0;
    int64_t shift = (h * 60LL + m) * 60 * SECOND;
    shift = *c->p == '+' ? -shift : shift;
    c->p = z.p;
    return shift;
}

static int64_t date_ns(int year, int month, int day)
{
    struct tm tm = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    return (int64_t)timegm(&tm) * SECOND;
}

static bool done(struct cursor *c, int year, int month, int day, int64_t ns, struct match_time *ret)
{
    if (!c->ok || month < 1 || month > 12 || day < 1 || day > 31)
        return false;
    *ret = (struct match_time){year ? MATCH_TIME_DATE : MATCH_TIME_NOYEAR,
                               date_ns(year ? year : 2000, month, day) + ns};
    return true;
}

static bool read_iso(struct cursor *c, struct match_time *ret)
{
    int year = digits(c, 4, 4);
    expect(c, "-/");
    int month = digits(c, 1, 2);
    expect(c, "-/");
    int day = digits(c, 1, 2);
    expect(c, "T _");
    int64_t ns = clock_time(c);
    ns += zone(c);
    c->ok = c->ok && year >= 1970 && year < 2200;
    return done(c, year, month, day, ns, ret);
}

/* "May  1 10:00:03", "Wed May  1 10:00:03 2024" */
static bool read_named(struct cursor *c, struct match_time *ret)
{
    struct cursor week = *c;
    if (isupper((unsigned char)c->p[0]) && c->p[0] && c->p[1] && c->p[2] && c->p[3] == ' ') {
        week.p += 4;
        month_name(&week);
        if (week.ok)
            c->p += 4;
    }
    int month = month_name(c);
    expect(c, " ");
    blanks(c);
    int day = digits(c, 1, 2);
    expect(c, " ");
    int64_t ns = clock_time(c);
    struct cursor year = *c;
    expect(&year, " ");
    int y = digits(&year, 4, 4);
    if (year.ok && y >= 1970 && y < 2200)
        c->p = year.p;
    else
        y = 0;
    return done(c, y, month, day, ns, ret);
}

static bool read_glog(struct cursor *c, struct match_time *ret)
{
    expect(c, "IWEFD");
    const char *from = c->p;
    digits(c, 3, 4);
    int n = (int)(c->p - from);
    struct cursor at = {from, c->ok};
    int month = digits(&at, n - 2, n - 2), day = digits(&at, 2, 2);
    expect(c, " ");
    int64_t ns = clock_time(c);
    return done(c, 0, month, day, ns, ret);
}

static bool uptime(struct cursor *c, int64_t ns, struct match_time *ret)
{
    if (c->ok)
        *ret = (struct match_time){MATCH_TIME_UPTIME, ns};
    return c->ok;
}

/* Parses a number of at most 14 digits, so that 1000 times the number fits in 64 bits. */
static int64_t count(struct cursor *c)
{
    int64_t v = 0;
    int n = 0;
    for (; c->ok && isdigit((unsigned char)*c->p) && n < 15; n++)
        v = v * 10 + (*c->p++ - '0');
    c->ok = c->ok && n > 0 && n < 15;
    return v;
}

/* Seconds since boot, or since 1970 (UCX). Values above thirty years are since 1970. */
static bool read_dmesg(struct cursor *c, struct match_time *ret)
{
    blanks(c);
    int64_t s = count(c);
    c->ok = c->ok && s < 8000000000LL;
    expect(c, ".");
    const char *from = c->p;
    int64_t us = digits(c, 6, 6);
    c->ok = c->ok && c->p - from == 6;
    expect(c, "]");
    if (!uptime(c, c->ok ? s * SECOND + us * 1000 : 0, ret))
        return false;
    if (s >= 1000000000LL)
        ret->kind = MATCH_TIME_DATE;
    return true;
}

static bool read_kmsg(struct cursor *c, struct match_time *ret)
{
    count(c);
    expect(c, ",");
    count(c);
    expect(c, ",");
    int64_t us = count(c);
    expect(c, ",");
    while (c->ok && *c->p && *c->p != ';' && *c->p != ' ')
        c->p++;
    expect(c, ";");
    return uptime(c, c->ok ? us * 1000 : 0, ret);
}

typedef bool reader_f(struct cursor *c, struct match_time *ret);

size_t match_time_read(const char *text, struct match_time *ret)
{
    bool bracket = *text == '[';
    struct cursor c = {text + bracket, true};
    if (bracket && read_dmesg(&c, ret))
        return (size_t)(c.p - text);
    static reader_f *const readers[] = {read_iso, read_named, read_glog, read_kmsg};
    for (size_t i = 0; i < sizeof(readers) / sizeof(readers[0]); i++) {
        c = (struct cursor){text + bracket, true};
        struct match_time t;
        if (!readers[i](&c, &t))
            continue;
        *ret = t;
        if (bracket && *c.p == ']')
            c.p++;
        return (size_t)(c.p - text);
    }
    return 0;
}

static int64_t without_year(struct match_time t)
{
    if (t.kind == MATCH_TIME_NOYEAR)
        return t.ns;
    struct tm tm;
    time_t s = t.ns / SECOND;
    gmtime_r(&s, &tm);
    tm.tm_year = 100;
    return (int64_t)timegm(&tm) * SECOND + t.ns % SECOND;
}

bool match_time_comparable(struct match_time a, struct match_time b)
{
    return a.kind != MATCH_TIME_NONE && b.kind != MATCH_TIME_NONE &&
           (a.kind == MATCH_TIME_UPTIME) == (b.kind == MATCH_TIME_UPTIME);
}

int match_time_compare(struct match_time a, struct match_time b)
{
    if (a.kind != b.kind) {
        a.ns = without_year(a);
        b.ns = without_year(b);
    }
    return (a.ns > b.ns) - (a.ns < b.ns);
}

char *match_time_text(struct match_time t, char *dst, size_t size)
{
    struct tm tm;
    time_t s = t.ns / SECOND;
    int ms = (int)(t.ns % SECOND / 1000000);
    char date[64] = "";
    if (size)
        dst[0] = 0;
    if (t.kind == MATCH_TIME_UPTIME)
        snprintf(dst, size, "%lld.%03d s after boot", (long long)s, ms);
    if ((t.kind != MATCH_TIME_DATE && t.kind != MATCH_TIME_NOYEAR) || !gmtime_r(&s, &tm))
        return dst;
    if (t.kind == MATCH_TIME_DATE) {
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
        snprintf(dst, size, "%s.%03dZ", date, ms);
    } else {
        strftime(date, sizeof(date), "%m-%d %H:%M:%S", &tm);
        snprintf(dst, size, "%s.%03d", date, ms);
    }
    return dst;
}
