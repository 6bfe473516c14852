/* SPDX-License-Identifier: Apache-2.0
 *
 * resources: amounts of cpu, memory and any other resources that nodes offer and pods request.
 *
 * Four kinds are in every struct. All others (extended resources, hugepages) are in a sorted list,
 * by a hash of their name, so any number of names costs nothing where they are not used. The hash
 * is 64 bits of BLAKE2b. With a weaker one a tenant could invent a name that counts as another
 * resource, such as a node's GPUs: a kubelet runs a pod whose nodeName is set and whose resource it
 * does not know.
 *
 * Amounts are 128 bits wide. A single one is at most QUANTITY_MAX, so sums are exact: 2^64 of them
 * do not overflow. The struct owns its list; one thread.
 */
#ifndef HVD_OPERATOR_OBJECTS_RESOURCES_H
#define HVD_OPERATOR_OBJECTS_RESOURCES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/err.h"
#include "operator/objects/quantity.h"

enum {
    RESOURCES_CPU, /* thousandths */
    RESOURCES_MEMORY,
    RESOURCES_STORAGE, /* ephemeral-storage */
    RESOURCES_PODS,
    RESOURCES_BASE, /* number of kinds that every struct has */
};

/* Other kinds in one pod. A hostile pod of 1.5 MB names 60,000. */
#define RESOURCES_OTHERS_MAX 256

typedef __int128 resources_sum;

struct resources_other {
    uint64_t kind; /* hash of the name */
    resources_sum amount;
};

struct resources {
    resources_sum amount[RESOURCES_BASE];
    struct resources_other *others; /* [n], sorted by kind; amounts may be 0 */
    size_t n;
};

void resources_fini(struct resources *r);
int resources_copy(const struct resources *r, struct resources *ret); /* -ENOMEM */

/* Parses {"cpu": "2", ...} into r: amounts that j names replace those of r. names: gets the names
 * of the other kinds, each with its NUL; NULL: they are not needed. j NULL or null: changes
 * nothing. -EINVAL: invalid amounts. -E2BIG: r would have more than RESOURCES_OTHERS_MAX other
 * kinds (an empty r may get any number). -ENOMEM. r is untouched on failure. */
int resources_parse(json_t *j, struct buf *names, struct resources *r, struct err *err);

/* Sets r to the sum, or to the larger of each kind. -E2BIG, -ENOMEM: r is untouched. */
int resources_add(struct resources *r, const struct resources *more, struct err *err);
int resources_max(struct resources *r, const struct resources *other, struct err *err);

/* Sets the amount of one kind; -EINVAL, -E2BIG, -ENOMEM as above. */
int resources_set(struct resources *r, const char *name, resources_sum amount, struct err *err);
/* The amount of a kind of this name; 0: r has none. */
resources_sum resources_get(const struct resources *r, const char *name);

/* Adds times the amounts of more, of those kinds that r has. Never fails. */
void resources_count(struct resources *r, const struct resources *more, int times);

/* Zero of each kind that r has. -ENOMEM. */
int resources_zero_like(const struct resources *r, struct resources *ret);

/* For a loop over all kinds of r: their number, the amount of the i-th kind in r, and the amount in
 * other of the kind that is r's i-th. */
static inline size_t resources_kinds(const struct resources *r)
{
    return RESOURCES_BASE + r->n;
}
resources_sum resources_at(const struct resources *r, size_t i);
resources_sum resources_same(const struct resources *r, size_t i, const struct resources *other);

/* How many times need fits into offered beside used, at most limit. What requests QUANTITY_MAX or
 * more of a kind fits nowhere. */
int resources_fit(const struct resources *offered, const struct resources *used,
                  const struct resources *need, int limit);

/* The name of the i-th kind of r. names: as collected by resources_parse(), and a NUL at its end;
 * NULL: none. */
const char *resources_name(const struct resources *r, size_t i, const char *names);

/* Writes an amount of the i-th kind: "1500m", "8Gi". Less than 0 is written as 0. */
void resources_write_amount(const struct resources *r, size_t i, const char *names,
                            resources_sum amount, char *dst, size_t size);

/* Writes "cpu 4, memory 8Gi, nvidia.com/gpu 1", without "pods" and kinds whose amount is 0;
 * "nothing" if no kind remains. */
void resources_write(const struct resources *r, const char *names, char *dst, size_t size);

#endif
