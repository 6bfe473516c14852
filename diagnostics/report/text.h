/* SPDX-License-Identifier: Apache-2.0
 *
 * text: a report for a person. It shows findings in full, each with the fix for the place where the
 * doctor ran (`hvd-doctor explain` shows those for all places), counts of the other results for
 * each group, and the verdict as the last line.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_TEXT_H
#define HVD_DIAGNOSTICS_REPORT_TEXT_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "diagnostics/doctor.h"

struct text_style {
    bool color;
    bool quiet;   /* only the verdict */
    bool verbose; /* a line for every check */
    int width;    /* columns at which long sentences are wrapped; 0: never */
};

void report_text(const struct report *report, const struct text_style *style, struct buf *out);

/* Writes text, wrapped at width (0: not), with indent blanks before each line but the first. */
void text_wrap(struct buf *out, const char *text, int indent, int width);

/* printf into a buffer. */
void text_put(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
