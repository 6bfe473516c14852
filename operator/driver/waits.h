/* SPDX-License-Identifier: Apache-2.0
 *
 * waits: what was written for one job and has to be in the caches before the job is looked at
 * again. Otherwise it would be decided on what was, and done twice. One owner: entries.h.
 */
#ifndef HVD_OPERATOR_DRIVER_WAITS_H
#define HVD_OPERATOR_DRIVER_WAITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/objects/pod.h"

enum wait_kind {
    WAIT_JOB,  /* its status was written: version */
    WAIT_POD,  /* it was made or changed: name, uid, version */
    WAIT_GONE, /* it was deleted: name, uid */
    WAIT_END,  /* the job was deleted: uid */
};

struct wait {
    enum wait_kind kind;
    uint64_t version;
    char name[64]; /* our pods' names are host names */
    char uid[POD_UID_MAX];
};

struct waits {
    struct wait *all;
    size_t n, cap;
    uint64_t until; /* clock_ns(): after that they are given up */
};

/* Given up after so long without what was written: a server that is away is listed anew, and what
 * is done twice then is refused by names, uids and versions. */
#define WAITS_MS 30000

/* -ENOMEM: it is not waited for. */
int waits_add(struct waits *w, const struct wait *one);

/* Drops those that are over, by is_over(); true when none is left, or their time is. Looks no
 * further than the first that is not over. */
bool waits_over(struct waits *w, bool (*is_over)(void *arg, const struct wait *one), void *arg);

void waits_fini(struct waits *w);

#endif
