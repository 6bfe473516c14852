/* SPDX-License-Identifier: Apache-2.0
 *
 * redact_value: the known secrets, and where one begins in a text, whichever way it is written
 * there: as it is, with escapes of JSON, C or a shell (also several times), in XML, in a URL, or as
 * a line of ours shows what is not printable. For redact.c alone.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_REDACT_VALUE_H
#define HVD_DIAGNOSTICS_REPORT_REDACT_VALUE_H

#include <stddef.h>

#define VALUE_MIN 6 /* shorter values are words and numbers of their own right */

struct value;

struct values {
    struct value *by_first[256];
};

/* Blanks around it do not count. Shorter than VALUE_MIN: nothing is added. 0 or -ENOMEM. */
int values_add(struct values *values, const char *text, size_t len);
void values_fini(struct values *values);

/* How many of the left bytes at p are a value, or the beginning of one that was cut off; 0: none.
 * It may end inside an escape. */
size_t values_at(const struct values *values, const char *p, size_t left);

#endif
