/* SPDX-License-Identifier: Apache-2.0
 *
 * resources: amounts of cpu, memory and whatever else nodes have and pods ask for, as vectors.
 * Which place of a vector is what, a table of kinds says: it grows as names are met, and whoever
 * compares two vectors has read both with the same table. The caller owns the table; one thread.
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
    int n; /* others */
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

/* Reads {"cpu": "2", ...} into ret, whose former amounts it replaces where there is one. j may be
 * NULL: nothing. A kind for which the table has no room any more is left out where loose is set
 * (nodes: nobody can ask for it), else -ENOSPC. -EINVAL: not amounts. */
int resources_parse(json_t *j, bool loose, struct resource_kinds *kinds, struct resources *ret,
                    struct err *err);

void resources_add(struct resources *sum, const struct resources *more);
void resources_subtract(struct resources *sum, const struct resources *less);
void resources_max(struct resources *most, const struct resources *other);

/* How many times need fits into free, at most limit; kinds that are not needed do not count. */
int resources_fit(const struct resources *free, const struct resources *need, int limit);

/* "cpu 4, memory 8Gi, nvidia.com/gpu 1"; kinds of which there is nothing are left out. */
void resources_write(const struct resource_kinds *kinds, const struct resources *r, char *dst,
                     size_t size);

#endif
