/* SPDX-License-Identifier: Apache-2.0
 *
 * jobfields: the fields that the spec of an HvdJob has (hvd.dev/v1alpha1), as one table: which this
 * machine uses, which are for a cluster, and what a misspelled one may have meant. Pure.
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

/* parent: "spec", or "spec.gang" and the like for the fields of one of the maps. */
enum jobfield jobfield_find(const char *parent, const char *name);

/* What to say of an unknown one, into dst: the known name that is close to it, or all there are. */
void jobfield_hint(const char *parent, const char *name, char *dst, size_t size);

#endif
