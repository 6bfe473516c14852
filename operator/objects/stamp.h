/* SPDX-License-Identifier: Apache-2.0
 *
 * stamp: times as the API writes them (RFC 3339, UTC) and as numbers: microseconds since 1970.
 * Pure.
 */
#ifndef HVD_OPERATOR_OBJECTS_STAMP_H
#define HVD_OPERATOR_OBJECTS_STAMP_H

#include <stdint.h>

#define STAMP_MAX    32
#define STAMP_SECOND INT64_C(1000000)

/* "2026-11-21T10:00:00Z", with a fraction and with an offset as well. -EINVAL:
 * no such text, or a time in UTC before the year 1 or after 9999. */
int stamp_parse(const char *text, int64_t *ret_us);

/* A MicroTime: "2026-11-21T10:00:00.000000Z", which stamp_parse() reads back; 1970 for what it
 * would refuse. */
const char *stamp_text(int64_t us, char dst[STAMP_MAX]);

#endif
