/* SPDX-License-Identifier: Apache-2.0
 *
 * quantity: Kubernetes quantities: "100m", "1.5Gi", "2e3", 4. Pure; any thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_QUANTITY_H
#define HVD_OPERATOR_OBJECTS_QUANTITY_H

#include <stddef.h>
#include <stdint.h>

/* The API server and quantity_parse() read any larger value as QUANTITY_MAX. A pod that requests
 * QUANTITY_MAX of a resource fits on no node (resources_fit()). */
#define QUANTITY_MAX INT64_MAX

enum quantity_unit { QUANTITY_COUNT, QUANTITY_MILLI, QUANTITY_BYTES };

/* *ret: in the unit (QUANTITY_MILLI: thousandths), rounded up as the scheduler does. -EINVAL: no
 * quantity, or negative; *ret is untouched then. */
int quantity_parse(const char *text, enum quantity_unit unit, int64_t *ret);

/* For people: "1500m", "4", "7.5Gi". */
void quantity_write(int64_t value, enum quantity_unit unit, char *dst, size_t size);

#endif
