/* SPDX-License-Identifier: Apache-2.0
 *
 * join_rank: what ranks in the tests of hvd_join() share.
 */
#ifndef HVD_TESTS_HARNESS_JOIN_RANK_H
#define HVD_TESTS_HARNESS_JOIN_RANK_H

#include "tests/harness/rank.h"

/* A request like that of rank_request(), of any kind and not in place. */
static inline struct hvd_request join_request(enum hvd_kind kind, const char *name, void *in,
                                              void *out, const int64_t *shape)
{
    struct hvd_request request = rank_request(name, in, shape);
    request.kind = kind;
    request.output = out;
    return request;
}

/* Submits and waits. 0, or FAIL(). */
static inline int join_wait(const struct hvd_request *r)
{
    hvd_handle h;
    return rank_wait(r, &h) < 0 ? FAIL("%s: %s", r->name, hvd_error()) : 0;
}

/* hvd_shutdown(), whose error counts if rc is 0. */
static inline int join_end(int rc)
{
    return hvd_shutdown() < 0 && rc == 0 ? FAIL("%s", hvd_error()) : rc;
}

#endif
