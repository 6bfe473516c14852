/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: text in the format that Prometheus reads (version 0.0.4), and histograms. Pure. Who has
 * numbers writes them when they are asked for.
 */
#ifndef HVD_OPERATOR_METRICS_METRICS_H
#define HVD_OPERATOR_METRICS_METRICS_H

#include <stdint.h>

#include "core/base/buf.h"

#define HISTOGRAM_BUCKETS 14

/* Seconds: buckets from 1 ms, each four times the one before, so up to 67,108 s. Zero-initialized
 * is empty. */
struct histogram {
    uint64_t n[HISTOGRAM_BUCKETS + 1]; /* the last: more than all */
    uint64_t count;
    double sum;
};

void histogram_add(struct histogram *h, double seconds);

/* "# HELP name help" and "# TYPE name kind" (counter, gauge, histogram); once a name, before its
 * values. */
void metrics_head(struct buf *dst, const char *name, const char *kind, const char *help);

/* One value; label NULL: without; another one behind it: label2. Values of labels are escaped. */
void metrics_value(struct buf *dst, const char *name, const char *label, const char *value,
                   double number);
void metrics_value2(struct buf *dst, const char *name, const char *label, const char *value,
                    const char *label2, const char *value2, double number);

/* Head and all lines of a histogram. */
void metrics_histogram(struct buf *dst, const char *name, const char *help,
                       const struct histogram *h);

/* Of n histograms, told apart by a label. */
void metrics_histograms(struct buf *dst, const char *name, const char *help, const char *label,
                        const char *const values[], const struct histogram h[], int n);

#endif
