/* SPDX-License-Identifier: Apache-2.0
 *
 * moment: times as API objects have them (RFC 3339) and as we reckon with them: milliseconds since
 * 1970, MOMENT_NONE where there is none. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_MOMENT_H
#define HVD_OPERATOR_OBJECTS_MOMENT_H

#include <stdint.h>

#define MOMENT_NONE INT64_C(0)
#define MOMENT_SIZE 32 /* of a text, with its NUL */
#define MOMENT_S    INT64_C(1000)

/* "2026-11-22T02:35:00Z", also with a fraction of seconds and an offset. NULL and "" are none.
 * -EINVAL: no such text, or a year before 1970 or after 9999; *ret is untouched then. */
int moment_parse(const char *text, int64_t *ret);

/* To the second, as metav1.Time has it: what is less is cut. */
void moment_write(int64_t moment, char dst[MOMENT_SIZE]);

/* What moment_parse() makes of what moment_write() writes. */
static inline int64_t moment_whole(int64_t moment)
{
    return moment - moment % MOMENT_S;
}

#endif
