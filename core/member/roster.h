/* SPDX-License-Identifier: Apache-2.0
 *
 * roster: who is in the job and in which state. Pure: events in, notes and epochs out, no I/O, no
 * clock but the one it is given. The coordinator owns it; one thread.
 *
 * Epoch e + 1 is published when every rank has given its card for it (hvd_init; again after
 * hvd_shutdown). What agents must know is a growing list of notes, numbered from 1.
 */
#ifndef HVD_MEMBER_ROSTER_H
#define HVD_MEMBER_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/member/findings.h"
#include "core/member/protocol.h"
#include "core/member/rank_state.h"

struct roster_rank {
    enum rank_state state;
    int agent; /* index */
    struct seat seat;
    int pid;
    int code;       /* of its end: exit code, -signal */
    bool early;     /* exited with 0 while others counted on it */
    uint64_t ended; /* clock, 0: not yet */
    char text[512]; /* why it could not start, how its agent was lost */
    char tail[MEMBER_TEXT_MAX];
    uint64_t batches, bytes;
    uint64_t moved; /* clock: when batches last grew, or it came into the world; 0: never */
    struct buf card;
};

struct roster_agent {
    char uid[MEMBER_NAME_MAX];
    char host[MEMBER_NAME_MAX]; /* as the user wrote it */
    int first, nranks;
    bool joined, gone;
    int pid, slots;
    char self[MEMBER_NAME_MAX]; /* as it calls itself */
    uint64_t seen;              /* clock of its last request */
    uint64_t seq;               /* last body that was applied */
    struct findings findings;   /* that stand there */
};

struct roster {
    char job[MEMBER_NAME_MAX];
    uint8_t key[MEMBER_KEY_SIZE];
    int size, nagents;
    struct roster_rank *ranks;
    struct roster_agent *agents;
    uint32_t epoch;       /* last one published, 0: none */
    int ready;            /* ranks whose card for epoch + 1 is here */
    uint64_t first_ready; /* clock of the first of them */
    int over;             /* ranks that ended or failed */
    int first;            /* the rank that failed first, -1: none */
    int early;            /* the first that left early, -1: none */
    bool stopping;        /* a stop was noted: failures from here on are its doing */
    int nnotes, notes_cap;
    struct note *notes;
};

/* One host with its ranks; uid is a name for its agent that nobody can mistake for another. */
struct roster_host {
    const char *uid, *host;
    int nranks;
};

/* size is the sum of the hosts' ranks, numbered host after host. */
int roster_init(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, struct err *err);
void roster_fini(struct roster *r);

/* The agent's index, -ENOENT. */
int roster_find(const struct roster *r, const char *uid);

/* Its agent joined. -EEXIST: it has, with another pid. */
int roster_join(struct roster *r, const struct join_body *body, uint64_t now, struct err *err);

/* Each is applied as far as it is legal; the first that is not is -EPROTO with its text. One that
 * was applied before (seq) is 0 and nothing. cards for an epoch that is over: -ESTALE. */
int roster_cards(struct roster *r, const struct cards_body *body, uint64_t now, struct err *err);
int roster_report(struct roster *r, const struct report_body *body, uint64_t now, struct err *err);
int roster_findings(struct roster *r, const struct findings_body *body, uint64_t now,
                    struct err *err);

/* The agent is gone for good; text says how ("ssh exited with code 255"). */
void roster_agent_lost(struct roster *r, int agent, const char *text, uint64_t now);

/* The others need not wait for this rank: it did not come in time, text says so. */
void roster_give_up(struct roster *r, int rank, const char *text);

/* For every rank: a signal; the end (SIGKILL after grace_ms). */
void roster_signal(struct roster *r, int signo);
void roster_stop(struct roster *r, const char *reason, int grace_ms);

/* Every rank has ended. */
bool roster_done(const struct roster *r);

/* The job's exit code so far: that of the first rank that failed, 128 + n for a signal; 0. */
int roster_exit_code(const struct roster *r);

/* The same words for an agent, which has no roster. text: why it could not start, "" otherwise. */
void roster_end_text(int rank, const char *host, int pid, int code, bool early, const char *text,
                     char *dst, size_t size);

/* "rank 3 on h2 (pid 71) was ended by signal 9 (SIGKILL)" and the like. */
void roster_describe_end(const struct roster *r, int rank, char *dst, size_t size);

/* Ranks in the given state as "0, 2-5 (h1), 8 (h2)"; "none". */
void roster_list(const struct roster *r, enum rank_state state, char *dst, size_t size);

#endif
