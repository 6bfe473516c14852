/* SPDX-License-Identifier: Apache-2.0
 *
 * leader: who leads, by a lease. Pure: what was read, what became of a write and what time it is
 * come in, what to do next goes out. Called by election.c; tests run many of them against one
 * lease.
 *
 * Two never lead at once, whatever the clocks of machines say, as long as each one's clock runs at
 * the right speed: a lease is somebody else's for its whole duration, counted on our own clock from
 * when we saw it change; and the holder stops renew_ms after it began its last renewal that went
 * through, which is earlier. A term is the lease's number of transitions; each time somebody begins
 * to lead it is a higher one, also when it was we who led before, or when the lease was deleted
 * meanwhile.
 */
#ifndef HVD_OPERATOR_API_LEADER_H
#define HVD_OPERATOR_API_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "operator/api/lease.h"

struct leader_config {
    const char *identity;                     /* no other process ever has it */
    uint64_t duration_ms, renew_ms, retry_ms; /* 15,000, 10,000, 2,000 */
};

enum leader_action {
    LEADER_WAIT,   /* until the next turn, retry_ms later */
    LEADER_READ,   /* the lease */
    LEADER_CREATE, /* leader_desired() */
    LEADER_WRITE,  /* leader_desired() over the version that was read */
};

enum leader_result { LEADER_DONE, LEADER_CONFLICT, LEADER_FAILED };

struct leader {
    struct leader_config config;
    struct lease seen; /* what the server has, as far as we know */
    bool have;         /* seen is something */
    uint64_t seen_at;  /* local, ns: when seen was first seen */
    bool leading;
    bool taking;         /* the write that is under way begins a term */
    uint64_t sent_at;    /* that write */
    int64_t highest;     /* term that was ever seen; -1: none */
    uint64_t renewed_at; /* when the last write that went through was sent */
    unsigned conflicts;  /* since the last turn */
    bool leaving;
};

void leader_init(struct leader *l, const struct leader_config *config);

/* The next turn has come: what to do. */
enum leader_action leader_turn(struct leader *l, uint64_t now);

/* The lease as read; NULL: there is none. What to do about it. */
enum leader_action leader_saw(struct leader *l, const struct lease *seen, uint64_t now);

/* What to write: for LEADER_CREATE and LEADER_WRITE, at the time when it is sent. wall_us is for
 * people who look at it. */
struct lease leader_desired(struct leader *l, uint64_t now, int64_t wall_us);

/* What became of the write; answer: the lease that the server sent back, when it is done. Returns
 * what to do at once. */
enum leader_action leader_wrote(struct leader *l, enum leader_result result,
                                const struct lease *answer, uint64_t now);

/* May we act? Ask before every write; false from leader_until() on. */
bool leader_leads(const struct leader *l, uint64_t now);
uint64_t leader_until(const struct leader *l);

/* The term, while leading. */
int64_t leader_term(const struct leader *l);

/* Leads no longer. LEADER_WRITE: leader_desired() frees the lease for the next one. */
enum leader_action leader_leave(struct leader *l, uint64_t now);

#endif
