/* SPDX-License-Identifier: Apache-2.0
 *
 * election: leader.c against a real lease, on the api's loop, one thread.
 */
#ifndef HVD_OPERATOR_API_ELECTION_H
#define HVD_OPERATOR_API_ELECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/api/api.h"

struct election;

struct election_config {
    struct api *api;
    const char *namespace, *name; /* of the Lease */
    const char *identity;         /* pod name and something that no other process ever has */
    uint64_t duration_ms, renew_ms, retry_ms; /* 0: 15,000, 10,000, 2,000 */
    void (*started)(void *arg, int64_t term);
    void (*stopped)(void *arg); /* at once: nothing may be written any more */
    void *arg;
};

/* Texts are copied. */
int election_open(struct election **ret, const struct election_config *config, struct err *err);

/* Ask before every write: the loop may be late with stopped(). */
bool election_leads(const struct election *e);

/* Frees the lease for the next one, if we hold it; left is called when that is done or has failed,
 * at most 2 s later, and then election_close() is to be called. stopped() comes before. */
void election_leave(struct election *e, void (*left)(void *arg));

/* The longest, in ns, that a turn of it had to wait for others on the loop. */
uint64_t election_late(const struct election *e);

/* What went wrong last, "" when nothing did. */
const char *election_problem(const struct election *e);

/* stopped() is not called. NULL is fine. */
void election_close(struct election *e);

#endif
