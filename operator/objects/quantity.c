/* SPDX-License-Identifier: Apache-2.0
 *
 * quantity: see quantity.h. Until the suffix is known, a number is kept as an integer and a decimal
 * exponent.
 */
#include "operator/objects/quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 18 /* significant digits; further ones are rounded up */

/* A factor of 2^binary * 10^decimal. */
static const struct suffix {
    const char *text;
    int binary, decimal;
} suffixes[] = {
    {"", 0, 0},    {"n", 0, -9},  {"u", 0, -6},  {"m", 0, -3},  {"k", 0, 3},   {"M", 0, 6},
    {"G", 0, 9},   {"T", 0, 12},  {"P", 0, 15},  {"E", 0, 18},  {"Ki", 10, 0}, {"Mi", 20, 0},
    {"Gi", 30, 0}, {"Ti", 40, 0}, {"Pi", 50, 0}, {"Ei", 60, 0},
};

static const struct suffix *find_suffix(const char *text)
{
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
        if (strcmp(suffixes[i].text, text) == 0)
            return &suffixes[i];
    return NULL;
}

/* "12.50": digits 1250, exponent -2. Returns the end of the number, NULL: no digits. */
static const char *mantissa(const char *p, int64_t *ret_digits, int *ret_exponent)
{
    int64_t value = 0;
    int exponent = 0, kept = 0, seen = 0, more = 0;
    for (int after = 0; (*p >= '0' && *p <= '9') || (*p == '.' && !after); p++) {
        if (*p == '.') {
            after = 1;
            continue;
        }
        seen++;
        if (kept < DIGITS_MAX) {
            value = value * 10 + (*p - '0');
            kept += value > 0;
            exponent -= after;
        } else {
            exponent += !after;
            more |= *p != '0';
        }
    }
    *ret_digits = value + more;
    *ret_exponent = exponent;
    return seen ? p : NULL;
}

/* value * 10^exponent * 2^binary, rounded up, at most QUANTITY_MAX. */
static int64_t scaled(int64_t value, int exponent, int binary)
{
    const __int128 most = QUANTITY_MAX;
    __int128 v = value;
    if (v == 0)
        return 0;
    for (; exponent > 0 && v <= most; exponent--)
        v *= 10;
    /* Multiply before dividing. DIGITS_MAX digits need 60 bits, so there is no overflow. What is
     * not divided afterwards and is more than QUANTITY_MAX already needs no shift. */
    if (v <= most || exponent < 0)
        v <<= binary;
    for (; exponent < 0 && v > 1; exponent++)
        v = (v + 9) / 10;
    return v > most ? QUANTITY_MAX : (int64_t)v;
}

int quantity_parse(const char *text, enum quantity_unit unit, int64_t *ret)
{
    int64_t value;
    int exponent;
    const char *p = mantissa(*text == '+' ? text + 1 : text, &value, &exponent);
    if (!p)
        return -EINVAL;
    if ((*p == 'e' || *p == 'E') && (p[1] == '-' || p[1] == '+' || (p[1] >= '0' && p[1] <= '9'))) {
        char *end;
        long more = strtol(p + 1, &end, 10);
        if (*end || end == p + 1)
            return -EINVAL;
        exponent += (int)(more > 1000 ? 1000 : more < -1000 ? -1000 : more);
        p = end;
    }
    const struct suffix *suffix = find_suffix(p);
    if (!suffix)
        return -EINVAL;
    *ret = scaled(value, exponent + suffix->decimal + (unit == QUANTITY_MILLI ? 3 : 0),
                  suffix->binary);
    return 0;
}

void quantity_write(int64_t value, enum quantity_unit unit, char *dst, size_t size)
{
    static const char *const names[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi"};
    double shown = (double)value;
    size_t i = 0;
    if (unit == QUANTITY_MILLI && value % 1000) {
        snprintf(dst, size, "%" PRId64 "m", value);
        return;
    }
    if (unit != QUANTITY_BYTES) {
        snprintf(dst, size, "%" PRId64, unit == QUANTITY_MILLI ? value / 1000 : value);
        return;
    }
    for (; i < 5 && shown >= 1024; i++)
        shown /= 1024;
    snprintf(dst, size, shown == (double)(int64_t)shown ? "%.0f%s" : "%.1f%s", shown, names[i]);
}
