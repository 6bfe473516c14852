/* SPDX-License-Identifier: Apache-2.0
 *
 * leader: the rules of leader election with a Lease. Pure: takes the lease as read, the results of
 * writes and the time, and returns what to do next. Called by election.c; tests run many candidates
 * against one lease.
 *
 * Two processes never lead at the same time, as long as all clocks run at the same speed; they need
 * not show the same time. A candidate respects a lease for its whole duration, on its own clock,
 * from the moment it saw the lease change. The leader stops earlier: renew_ms after it sent its
 * last successful renewal.
 *
 * The term is the lease's number of transitions. It rises each time a process begins to lead, also
 * if the same process led before, or if the lease was deleted meanwhile.
 */
#ifndef HVD_OPERATOR_API_LEADER_H
#define HVD_OPERATOR_API_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/api/lease.h"

struct leader_config {
    const char *identity;                     /* unique among all processes ever */
    uint64_t duration_ms, renew_ms, retry_ms; /* 15,000, 10,000, 2,000 */
};

enum leader_action {
    LEADER_WAIT,   /* wait for the next turn, retry_ms later */
    LEADER_READ,   /* read the lease */
    LEADER_CREATE, /* create leader_desired() */
    LEADER_WRITE,  /* update the lease to leader_desired() at the version that was read */
};

enum leader_result { LEADER_DONE, LEADER_CONFLICT, LEADER_FAILED };

struct leader {
    struct leader_config config;
    struct lease seen; /* the lease as last read or written */
    bool have;         /* seen is set */
    uint64_t seen_at;  /* local clock, ns, when seen last changed */
    bool leading;
    bool taking;         /* the write in flight begins a term */
    uint64_t sent_at;    /* when the last write was sent */
    int64_t highest;     /* the highest term ever seen; -1: none */
    uint64_t renewed_at; /* when the last successful write was sent */
    unsigned conflicts;  /* since the last turn */
    bool unsure; /* a write was sent, and it is not known whether the server has executed it */
    bool leaving;
    bool releasing; /* the lease is still to be released */
    /* Another candidate could do more. This one takes a lease only after it has been free for
     * duration_ms, so that the other one takes it if there is one. Set by the caller. */
    bool yields;
};

void leader_init(struct leader *l, const struct leader_config *config);

/* Call it at each turn. Returns what to do. */
enum leader_action leader_turn(struct leader *l, uint64_t now);

/* Call it with the lease that was read; NULL: it does not exist. Returns what to do. */
enum leader_action leader_saw(struct leader *l, const struct lease *seen, uint64_t now);

/* The lease to write for LEADER_CREATE and LEADER_WRITE; call it when the write is sent. wall_us
 * becomes renewTime, which is only for people. */
struct lease leader_desired(struct leader *l, uint64_t now, int64_t wall_us);

/* Call it with the result of the write. answer: the lease in the response, for LEADER_DONE. Returns
 * what to do. */
enum leader_action leader_wrote(struct leader *l, enum leader_result result,
                                const struct lease *answer, uint64_t now);

/* May this process write now? False from leader_until() on. */
bool leader_leads(const struct leader *l, uint64_t now);
uint64_t leader_until(const struct leader *l);

/* The term, while leading. */
int64_t leader_term(const struct leader *l);

/* Stops leading, and remains a candidate. LEADER_WRITE: leader_desired() releases the lease. */
enum leader_action leader_release(struct leader *l, uint64_t now);

/* Stops leading for good. Returns what to do to release the lease: leader_desired() releases it. An
 * answer to an earlier request is not to be passed on any more. LEADER_WAIT, from this and the
 * functions above: nothing is left to do. */
enum leader_action leader_leave(struct leader *l, uint64_t now);

#endif
