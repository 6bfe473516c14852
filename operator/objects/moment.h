/* SPDX-License-Identifier: Apache-2.0
 *
 * moment: converts times between API objects (RFC 3339) and milliseconds since 1970. MOMENT_NONE:
 * no time. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_MOMENT_H
#define HVD_OPERATOR_OBJECTS_MOMENT_H

#include <stdint.h>

#define MOMENT_NONE INT64_C(0)
#define MOMENT_SIZE 32 /* bytes of a text, with its NUL */
#define MOMENT_S    INT64_C(1000)

/* Parses "2026-11-22T02:35:00Z", also with a fraction of seconds and an offset. NULL and "" give
 * MOMENT_NONE. -EINVAL: invalid text, or a year before 1970 or after 9999; *ret is untouched
 * then. */
int moment_parse(const char *text, int64_t *ret);

/* Writes a metav1.Time: cut to the second. */
void moment_write(int64_t moment, char dst[MOMENT_SIZE]);

/* Cut to the second: the value that survives moment_write() and moment_parse(). */
static inline int64_t moment_whole(int64_t moment)
{
    return moment - moment % MOMENT_S;
}

#endif
