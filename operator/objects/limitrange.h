/* SPDX-License-Identifier: Apache-2.0
 *
 * limitrange: what a LimitRange adds to a container that names no request: a projection. Pure; the
 * caller of limitrange_parse() calls limitrange_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_LIMITRANGE_H
#define HVD_OPERATOR_OBJECTS_LIMITRANGE_H

#include "operator/objects/resources.h"

struct limitrange {
    struct resources defaults; /* default requests of one container */
    char *names;               /* of the other kinds in it, for resources_name(); NULL: none */
};

/* From a LimitRange. -EINVAL: invalid amounts. -E2BIG: more than RESOURCES_OTHERS_MAX kinds.
 * -ENOMEM. *ret is untouched on failure. */
int limitrange_parse(json_t *j, struct limitrange *ret, struct err *err);
void limitrange_fini(struct limitrange *l);

/* For a namespace with several LimitRanges: the larger default of each kind, because the API server
 * takes any of them. -E2BIG, -ENOMEM: into is untouched, except perhaps names. */
int limitrange_merge(struct limitrange *into, const struct limitrange *more, struct err *err);

#endif
