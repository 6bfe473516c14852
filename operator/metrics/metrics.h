/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: writes Prometheus' text format (version 0.0.4), and histograms. Pure. Each part writes
 * its metrics when /metrics is read.
 */
#ifndef HVD_OPERATOR_METRICS_METRICS_H
#define HVD_OPERATOR_METRICS_METRICS_H

#include <stdint.h>

#include "core/base/buf.h"

#define HISTOGRAM_BUCKETS 14

/* A histogram of seconds. The first bucket ends at 1 ms, each further one at four times the last,
 * up to 67,108 s. Zero-initialized: empty. */
struct histogram {
    uint64_t n[HISTOGRAM_BUCKETS + 1]; /* the last bucket has no limit */
    uint64_t count;
    double sum;
};

void histogram_add(struct histogram *h, double seconds);

/* Writes "# HELP name help" and "# TYPE name kind" (counter, gauge, histogram). Call it once per
 * name, before its values. */
void metrics_head(struct buf *dst, const char *name, const char *kind, const char *help);

/* Writes one value, with one label (NULL: none) or two. Escapes the labels' values. */
void metrics_value(struct buf *dst, const char *name, const char *label, const char *value,
                   double number);
void metrics_value2(struct buf *dst, const char *name, const char *label, const char *value,
                    const char *label2, const char *value2, double number);

/* Writes the head and all lines of a histogram. */
void metrics_histogram(struct buf *dst, const char *name, const char *help,
                       const struct histogram *h);

/* Writes the head and all lines of n histograms; h[i] has the label's value values[i]. */
void metrics_histograms(struct buf *dst, const char *name, const char *help, const char *label,
                        const char *const values[], const struct histogram h[], int n);

#endif
