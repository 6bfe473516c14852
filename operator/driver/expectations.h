/* SPDX-License-Identifier: Apache-2.0
 *
 * expectations: the writes of one job that its caches do not show yet, as in controller-runtime.
 * The job is not reconciled before they do: reconcile() would decide on the state before the
 * writes, and the driver would repeat them. Owned by the job's entry (entries.h).
 */
#ifndef HVD_OPERATOR_DRIVER_EXPECTATIONS_H
#define HVD_OPERATOR_DRIVER_EXPECTATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "operator/objects/pod.h"

enum expectation_kind {
    EXPECT_STATUS,   /* the job's status was written: version */
    EXPECT_POD,      /* a pod was created or patched: name, uid, version */
    EXPECT_POD_GONE, /* a pod was deleted: name, uid */
    EXPECT_JOB_GONE, /* the job was deleted: uid */
};

struct expectation {
    enum expectation_kind kind;
    uint64_t version;
    char name[64]; /* names of workers' pods are host names: at most 63 characters */
    char uid[POD_UID_MAX];
};

struct expectations {
    struct expectation *all;
    size_t n, cap;
    uint64_t until; /* clock_ns() at which they expire */
};

/* Expectations expire after so long. The job is then reconciled on what the cache has: a repeated
 * create, delete or status write is refused by its name, uid or resourceVersion. */
#define EXPECTATIONS_MS 30000

/* -ENOMEM: nothing is added, and the caller goes on without it. */
int expectations_add(struct expectations *w, const struct expectation *one);

/* Drops satisfied expectations from the end of the list, up to the first for which is_satisfied()
 * is false. True: none remains, or they have expired. */
bool expectations_satisfied(struct expectations *w,
                            bool (*is_satisfied)(void *arg, const struct expectation *one),
                            void *arg);

void expectations_fini(struct expectations *w);

#endif
