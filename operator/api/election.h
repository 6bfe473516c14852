/* SPDX-License-Identifier: Apache-2.0
 *
 * election: leader election. Does the requests that leader.c decides on, with a Lease in the API
 * server. On the api's loop, one thread.
 */
#ifndef HVD_OPERATOR_API_ELECTION_H
#define HVD_OPERATOR_API_ELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/api/api.h"
#include "operator/api/problem.h"

struct election;

struct election_config {
    struct api *api;
    const char *namespace, *name;             /* namespace and name of the Lease */
    const char *identity;                     /* unique: no other process may ever have the same */
    uint64_t duration_ms, renew_ms, retry_ms; /* 0: the defaults 15,000, 10,000, 2,000 */
    void (*started)(void *arg, int64_t term); /* this process leads now */
    void (*stopped)(void *arg);               /* it does not lead any more and must not write */
    /* Does this process yield to other candidates (leader.h)? NULL: never. */
    bool (*yields)(void *arg);
    void *arg;
};

/* Texts are copied. */
int election_open(struct election **ret, const struct election_config *config, struct err *err);

/* Returns whether this process leads now. Check it before each write: stopped() may be late if the
 * loop is busy. */
bool election_leads(const struct election *e);

/* Releases the lease, if this process holds it: calls stopped(), and remains a candidate. */
void election_release(struct election *e);

/* Releases the lease, if this process holds it: calls stopped(), and left() after the request has
 * finished or failed, at most 2 s later. Call election_close() after left(). */
void election_leave(struct election *e, void (*left)(void *arg));

/* The longest time, in ns, by which other work of the loop has delayed a renewal or a candidate's
 * read of the lease. */
uint64_t election_late(const struct election *e);

/* metadata.uid of the Lease; "": not known yet. */
const char *election_lease_uid(const struct election *e);

/* Why the last attempt to read, take or renew the lease failed. Never NULL; its text is "" if it
 * succeeded. */
const struct problem *election_problem(const struct election *e);

/* stopped() is not called. NULL is fine. */
void election_close(struct election *e);

#endif
