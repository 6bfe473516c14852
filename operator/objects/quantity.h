/* SPDX-License-Identifier: Apache-2.0
 *
 * quantity: amounts as API objects have them: "100m", "1.5Gi", "2e3", 4. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_QUANTITY_H
#define HVD_OPERATOR_OBJECTS_QUANTITY_H

#include <stddef.h>
#include <stdint.h>

/* More than this is this: sums of some of them do not overflow. */
#define QUANTITY_MAX (INT64_MAX / 65536)

enum quantity_unit { QUANTITY_COUNT, QUANTITY_MILLI, QUANTITY_BYTES };

/* In units (QUANTITY_MILLI: thousandths), rounded up as the scheduler does. -EINVAL: not one, or
 * less than 0; *ret is untouched then. */
int quantity_parse(const char *text, enum quantity_unit unit, int64_t *ret);

/* For people: "1500m", "4", "7.5Gi". */
void quantity_write(int64_t value, enum quantity_unit unit, char *dst, size_t size);

#endif
