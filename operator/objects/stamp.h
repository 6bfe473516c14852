/* SPDX-License-Identifier: Apache-2.0
 *
 * stamp: converts times between the API (RFC 3339, UTC) and microseconds since 1970. Pure.
 */
#ifndef HVD_OPERATOR_OBJECTS_STAMP_H
#define HVD_OPERATOR_OBJECTS_STAMP_H

#include <stdint.h>

#define STAMP_MAX    32
#define STAMP_SECOND INT64_C(1000000)

/* Parses "2026-11-21T10:00:00Z", also with a fraction and an offset. -EINVAL: invalid text, or a
 * UTC time before the year 1 or after 9999. */
int stamp_parse(const char *text, int64_t *ret_us);

/* Writes a MicroTime, "2026-11-21T10:00:00.000000Z". A time that stamp_parse() would refuse is
 * written as 1970. */
const char *stamp_text(int64_t us, char dst[STAMP_MAX]);

#endif
