/* SPDX-License-Identifier: Apache-2.0
 *
 * resources: vectors of amounts: cpu, memory and other resources that nodes offer and pods request.
 * A table of kinds maps names to indices; it grows as new names are parsed. Two vectors can be
 * compared only if they were parsed with the same table. The caller owns the table; one thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_RESOURCES_H
#define HVD_OPERATOR_OBJECTS_RESOURCES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "operator/objects/quantity.h"

enum {
    RESOURCES_CPU,
    RESOURCES_MEMORY,
    RESOURCES_STORAGE, /* ephemeral-storage */
    RESOURCES_PODS,
    RESOURCES_FIRST_OTHER,
    RESOURCES_MAX = 12,
};

#define RESOURCES_NAME_MAX 96

struct resource_kinds {
    int n; /* number of names */
    char names[RESOURCES_MAX - RESOURCES_FIRST_OTHER][RESOURCES_NAME_MAX];
};

struct resources {
    int64_t amount[RESOURCES_MAX];
};

const char *resources_name(const struct resource_kinds *kinds, int kind);
enum quantity_unit resources_unit(const struct resource_kinds *kinds, int kind);
static inline int resources_count(const struct resource_kinds *kinds)
{
    return RESOURCES_FIRST_OTHER + kinds->n;
}

/* Parses {"cpu": "2", ...} into ret; amounts that j does not name are kept. j NULL: changes
 * nothing. A kind that does not fit into the table any more: ignored if loose (nodes: no job can
 * request it), else -ENOSPC. -EINVAL: invalid amounts. */
int resources_parse(json_t *j, bool loose, struct resource_kinds *kinds, struct resources *ret,
                    struct err *err);

void resources_add(struct resources *sum, const struct resources *more);
void resources_subtract(struct resources *sum, const struct resources *less);
void resources_max(struct resources *most, const struct resources *other);

/* How many times need fits into free, at most limit. */
int resources_fit(const struct resources *free, const struct resources *need, int limit);

/* Writes "cpu 4, memory 8Gi, nvidia.com/gpu 1", without "pods" and kinds whose amount is 0;
 * "nothing" if no kind remains. */
void resources_write(const struct resource_kinds *kinds, const struct resources *r, char *dst,
                     size_t size);

#endif
