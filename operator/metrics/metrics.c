/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: see metrics.h.
 */
#include "operator/metrics/metrics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void put(struct buf *dst, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct buf *dst, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n > 0)
        buf_put(dst, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static double bound(int bucket)
{
    return 0.001 * (double)(UINT64_C(1) << 2 * bucket);
}

void histogram_add(struct histogram *h, double seconds)
{
    int i = 0;
    while (i < HISTOGRAM_BUCKETS && seconds > bound(i))
        i++;
    h->n[i]++;
    h->count++;
    h->sum += seconds;
}

void metrics_head(struct buf *dst, const char *name, const char *kind, const char *help)
{
    put(dst, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

/* Writes label="value" and escapes quotes, backslashes and newlines. */
static void put_label(struct buf *dst, const char *label, const char *value)
{
    put(dst, "%s=\"", label);
    for (const char *p = value; *p; p++) {
        if (*p == '\\' || *p == '"')
            buf_put_u8(dst, '\\');
        if (*p == '\n')
            put(dst, "\\n");
        else
            buf_put_u8(dst, (uint8_t)*p);
    }
    buf_put_u8(dst, '"');
}

static void put_number(struct buf *dst, double number)
{
    if (number == floor(number) && fabs(number) < 1e15)
        put(dst, " %.0f\n", number);
    else
        put(dst, " %.9g\n", number);
}

void metrics_value(struct buf *dst, const char *name, const char *label, const char *value,
                   double number)
{
    put(dst, "%s", name);
    if (label) {
        buf_put_u8(dst, '{');
        put_label(dst, label, value);
        buf_put_u8(dst, '}');
    }
    put_number(dst, number);
}

void metrics_value2(struct buf *dst, const char *name, const char *label, const char *value,
                    const char *label2, const char *value2, double number)
{
    put(dst, "%s{", name);
    put_label(dst, label, value);
    buf_put_u8(dst, ',');
    put_label(dst, label2, value2);
    buf_put_u8(dst, '}');
    put_number(dst, number);
}

/* value NULL: without the label. */
static void put_histogram(struct buf *dst, const char *name, const char *label, const char *value,
                          const struct histogram *h)
{
    char full[160], text[32];
    uint64_t sum = 0;
    snprintf(full, sizeof(full), "%s_bucket", name);
    for (int i = 0; i <= HISTOGRAM_BUCKETS; i++) {
        sum += h->n[i];
        snprintf(text, sizeof(text), "%.3f", bound(i));
        const char *le = i < HISTOGRAM_BUCKETS ? text : "+Inf";
        if (value)
            metrics_value2(dst, full, label, value, "le", le, (double)sum);
        else
            metrics_value(dst, full, "le", le, (double)sum);
    }
    snprintf(full, sizeof(full), "%s_sum", name);
    metrics_value(dst, full, value ? label : NULL, value, h->sum);
    snprintf(full, sizeof(full), "%s_count", name);
    metrics_value(dst, full, value ? label : NULL, value, (double)h->count);
}

void metrics_histogram(struct buf *dst, const char *name, const char *help,
                       const struct histogram *h)
{
    metrics_head(dst, name, "histogram", help);
    put_histogram(dst, name, NULL, NULL, h);
}

void metrics_histograms(struct buf *dst, const char *name, const char *help, const char *label,
                        const char *const values[], const struct histogram h[], int n)
{
    metrics_head(dst, name, "histogram", help);
    for (int i = 0; i < n; i++)
        put_histogram(dst, name, label, values[i], &h[i]);
}
