/* SPDX-License-Identifier: Apache-2.0
 *
 * redact_value: the values of known secrets, and a search for them in a text, however they are
 * encoded there: plain, escaped for JSON, C or a shell (also several times), in XML, in a URL, or
 * with unprintable bytes replaced as our own output does it. For redact.c alone.
 */
#ifndef HVD_DIAGNOSTICS_REPORT_REDACT_VALUE_H
#define HVD_DIAGNOSTICS_REPORT_REDACT_VALUE_H

#include <stddef.h>

#define VALUE_MIN 6 /* bytes; shorter values are common words and numbers */

struct value;

struct values {
    struct value *by_first[256];
};

/* Adds a value; surrounding blanks are removed. A value shorter than VALUE_MIN is ignored. 0 or
 * -ENOMEM. */
int values_add(struct values *values, const char *text, size_t len);
void values_fini(struct values *values);

/* How many of the left bytes at p are a value, or the beginning of a value that was cut off; 0:
 * none. The result may end inside an escape. */
size_t values_at(const struct values *values, const char *p, size_t left);

#endif
