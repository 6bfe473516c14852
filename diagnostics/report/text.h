/* SPDX-License-Identifier: Apache-2.0
 *
 * text: a report for a person. Findings in full, each with the fix for the place where the doctor
 * ran (`hvd-doctor explain` shows those for all places); the rest as counts a group; the one-line
 * verdict last.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_TEXT_H
#define HVD_DIAGNOSTICS_REPORT_TEXT_H

#include <stdbool.h>

#include "core/base/buf.h"
#include "diagnostics/doctor.h"

struct text_style {
    bool color;
    bool quiet;   /* the verdict alone */
    bool verbose; /* a line for every check */
    int width;    /* long sentences are wrapped there; 0: never */
};

void report_text(const struct report *report, const struct text_style *style, struct buf *out);

/* text with this much space before each line, wrapped at width (0: not), the first line as it
 * stands. */
void text_wrap(struct buf *out, const char *text, int indent, int width);

/* printf into a buffer. */
void text_put(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
