/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfields: the fields of an HvdJob's spec (hvd.dev/v1alpha1) as one table: which are used on this
 * machine, which are for a cluster, and which field a misspelt name may mean. Pure.
 */
#ifndef HVD_AGENT_JOBFIELDS_H
#define HVD_AGENT_JOBFIELDS_H

#include <stddef.h>

enum jobfield {
    JOBFIELD_UNKNOWN,
    JOBFIELD_USED,
    JOBFIELD_CLUSTER,
    JOBFIELD_CLUSTER_MAP,
    JOBFIELD_USED_MAP
};

/* parent: "spec", or "spec.gang" and the like for fields of a nested map. */
enum jobfield jobfield_find(const char *parent, const char *name);

/* Writes a hint about an unknown field to dst: the known name that is close to it, or all names. */
void jobfield_hint(const char *parent, const char *name, char *dst, size_t size);

#endif
