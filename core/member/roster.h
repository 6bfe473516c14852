/* SPDX-License-Identifier: Apache-2.0
 *
 * roster: who is in the job and in which state. Pure: events in, notes and epochs out, no I/O, no
 * clock but the one it is given. The coordinator owns it; one thread.
 *
 * A *member* is a rank process; its number is never used again. Its *rank* is its place in the
 * world of the current epoch. What agents must know is a growing list of notes, numbered from 1.
 *
 * Fixed job: epoch e + 1 is published when every rank has given its card for it (hvd_init; again
 * after hvd_shutdown). Elastic job: README.md has the rules, roster_epoch.c the code. roster.c has
 * the events, roster_change.c planned changes and replacements, roster_arrivals.c those that come
 * while others train, roster_text.c the words.
 */
#ifndef HVD_MEMBER_ROSTER_H
#define HVD_MEMBER_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/member/findings.h"
#include "core/member/protocol.h"
#include "core/member/rank_state.h"
#include "core/member/gaps.h"
#include "core/member/rejoin.h"
#include "core/member/roster_starts.h"
#include "core/member/roster_work.h"

struct roster_member {
    enum rank_state state;
    int agent; /* index */
    struct seat seat;
    int rank;     /* in the current world, -1: in none */
    int was_rank; /* the last one it had, -1: none */
    int pid;
    int code;          /* of its end: exit code, -signal */
    bool early;        /* exited with 0 while others counted on it */
    bool disturbed;    /* fixed: it said that another rank's end made its operations fail */
    bool stopped;      /* it ended because the job was being stopped */
    uint64_t left_at;  /* clock: when it called hvd_shutdown(), out of a world; 0: it did not */
    bool reaped;       /* its process is gone; an end may be known before */
    bool leaving;      /* was asked to leave: its end is no failure */
    bool out;          /* said that it cannot go on */
    bool was_in;       /* it was in some epoch */
    bool is_new;       /* in the current one: it has no state */
    enum card_why why; /* of its last card */
    uint64_t started;  /* clock, 0: not yet */
    uint64_t waits;    /* clock: since when it is ready */
    uint64_t ended;    /* clock, 0: not yet */
    char *text;        /* why it could not start, how its agent was lost; owned, NULL: nothing */
    char *tail;        /* last lines of its stderr; the same */
    uint64_t batches, bytes;
    uint64_t moved; /* clock: when batches last grew, or it came into the world; 0: never */
    struct buf card;
};

/* Room for one rank on an agent. */
struct roster_place {
    int member;       /* the last one there, -1: none */
    uint64_t backoff; /* before the next replacement there, ns; 0: none failed lately */
};

struct roster_agent {
    char *uid, *host; /* owned; host: as the user wrote it */
    int nplaces;
    int room; /* places that there is memory for: there may have been more once */
    struct roster_place *places;
    bool joined, gone;
    bool draining; /* nothing is started there any more */
    int order;     /* when the job becomes smaller those with the highest go first */
    int pid, slots;
    char *self;               /* as it calls itself; owned, NULL: it has not joined */
    struct gaps gaps;         /* when it was heard last, and how often */
    uint64_t seq;             /* last body that was applied */
    struct rejoin *told;      /* while a roster is rebuilt: what it knows */
    struct findings findings; /* that stand there */
};

/* What makes a job elastic. */
struct roster_elastic {
    int min, max;         /* ranks */
    int reset_limit;      /* replacements at most, 0: any number */
    uint64_t start_limit; /* ns that those who are ready wait for those who start */
    /* ns before a place gets another rank: the first time, and at most; 0: 1 s, 60 s */
    uint64_t backoff_first, backoff_max;
};

/* The last epoch that was published, and why. */
struct roster_last {
    uint32_t epoch;
    char cause[512];
    uint64_t at;   /* clock */
    uint64_t took; /* ns from the loss or the announcement */
    bool lost;     /* it is the answer to a loss */
};

/* An epoch is term << 20 | its number: that of a coordinator is higher than any that a former one
 * can have made. The numbers go on. */
#define ROSTER_TERM_SHIFT 20
#define ROSTER_TERM_MAX   4095

static inline uint32_t roster_epoch_number(uint32_t epoch)
{
    return epoch & ((1u << ROSTER_TERM_SHIFT) - 1);
}

/* What the coordinator before this one has left in writing; the rest the agents know. */
struct roster_former {
    uint32_t term;   /* of the new one */
    uint32_t change; /* the last number it gave */
    int target, nmembers, restarts;
    int nleaving;
    const int *leaving; /* members that were chosen to leave */
    /* Nothing is written down but target: the agents tell how many members there were. */
    bool unwritten;
};

struct roster {
    char job[MEMBER_NAME_MAX];
    uint8_t key[MEMBER_KEY_SIZE];
    int size; /* of the world; before there is one: ranks that are to be in it */
    int nmembers, members_cap;
    struct roster_member *members; /* by number */
    int nagents;
    struct roster_agent *agents;
    uint32_t epoch;           /* last one published, 0: none */
    uint32_t term;            /* which coordinator of the job this is: 0 the first */
    bool rebuilding;          /* agents are asked what they know; nothing is decided meanwhile */
    uint64_t rebuild_by;      /* clock: those that have not come by then are given up */
    struct roster_body world; /* of it, with cards of its own */
    int ready;                /* members that wait for the next epoch */
    uint64_t first_ready;     /* clock of the first of them */
    int over;                 /* members that ended or failed */
    int first;                /* the member that made the job fail, -1: none */
    int early;                /* the first that left early, -1: none */
    int follower;  /* the first that failed because of another rank's end (END_FOLLOWS), -1: none */
    bool stopping; /* a stop was noted: failures from here on are its doing */
    int nnotes, notes_cap;
    struct note *notes;

    /* Elastic jobs. */
    bool is_elastic;
    bool closing; /* a signal ends the job: nobody comes any more, failures count */
    /* Hosts come and go by somebody else's will, who also decides what a failure means for the job
     * (a cluster): a target may be beyond the room there is, one that is to go may leave fewer than
     * min, and a failed member is always replaced. */
    bool hosted;
    int arriving; /* hosted: ranks there will be room for on hosts that are on their way */
    struct roster_elastic elastic;
    int target;                          /* ranks there should be */
    uint32_t change, announced, applied; /* planned changes: numbers given, told, in the roster */
    bool had_boundary;           /* some rank has come to one since this coordinator is there */
    struct roster_starts starts; /* room for elastic.max, or more */
    int done;                    /* members whose program has ended well */
    uint64_t left_done;       /* operations that one who said BYE had finished, the most of all */
    int spoilt;               /* the first whose program failed after hvd_shutdown, -1: none */
    int owed;                 /* the last that failed after hvd_shutdown() while others trained and
                                 for which no new member has come in yet, -1: none */
    int last_failed;          /* -1: none */
    uint32_t judged;          /* the last epoch that all of its members were lost from */
    int erred_worlds;         /* such epochs in a row in which every rank ended by an error */
    int restarts;             /* replacements so far */
    uint64_t answering_since; /* clock: survivors answer, 0: none has to */
    uint64_t waiting_since;   /* clock: below min, or without a world; 0: not so */
    uint64_t joiner_ready;    /* clock: since when a joiner waits; 0: none does */
    char plan[256];           /* planned changes that are not announced yet, in words */
    uint64_t cause_at;        /* clock of the loss or announcement that comes next; 0: none */
    char cause[512];
    struct roster_former former; /* while it is rebuilt; leaving is owned */
    struct roster_last last;
    struct roster_work work;
};

/* One host with its ranks; uid is a name for its agent that nobody can mistake for another. */
struct roster_host {
    const char *uid, *host;
    int nranks; /* at the start */
    int slots;  /* ranks there may be; less than nranks: that many */
};

/* size is the sum of the hosts' ranks, numbered host after host. */
int roster_init(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, struct err *err);
void roster_fini(struct roster *r);

/* No host yet: roster_add_host(). size ranks there should be; to be made elastic. */
int roster_init_hosted(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                       int size, struct err *err);

/* Before any event. 1 <= min <= size <= max. */
int roster_make_elastic(struct roster *r, const struct roster_elastic *elastic, struct err *err);

/* roster_rebuild.c: instead of both of the above, in a job that is elastic and runs already. Hosts
 * have no ranks here, slots says how many there may be. Until every agent that is not gone has
 * joined with what it knows, or until the clock is rebuild_by, the roster only gathers:
 * roster_join() is -EAGAIN. Then it goes on from there (in the last join, or in roster_tick()). key
 * is for a world to come where no agent has been in one. */
int roster_begin_rebuild(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                         const struct roster_host *hosts, int nhosts,
                         const struct roster_elastic *elastic, const struct roster_former *former,
                         uint64_t rebuild_by, struct err *err);

/* Some notes are only for the agent that has the member: its index; -1: for all. */
int roster_note_agent(const struct roster *r, const struct note *n);

/* The agent's index, -ENOENT. */
int roster_find(const struct roster *r, const char *uid);

/* Its agent joined. -EEXIST: it has, with another pid. body->rejoin may be taken (NULL then). */
int roster_join(struct roster *r, struct join_body *body, uint64_t now, struct err *err);

/* Each is applied as far as it is legal; the first that is not is -EPROTO with its text. One that
 * was applied before (seq) is 0 and nothing. cards for an epoch that is over, in a fixed job:
 * -ESTALE. */
int roster_cards(struct roster *r, const struct cards_body *body, uint64_t now, struct err *err);
int roster_report(struct roster *r, const struct report_body *body, uint64_t now, struct err *err);
int roster_findings(struct roster *r, const struct findings_body *body, uint64_t now,
                    struct err *err);

/* The agent is gone for good; text says how ("ssh exited with code 255"). */
void roster_agent_lost(struct roster *r, int agent, const char *text, uint64_t now);

/* The others need not wait for this member: it did not come in time, text says so. */
void roster_give_up(struct roster *r, int member, const char *text);

/* The member that decides the exit code, -1: none, it is 0. rank_end.h has the rule. */
int roster_culprit(const struct roster *r);

/* The member whose end explains the job's failure: the culprit, or the rank whose leaving made the
 * culprit fail. -1: none */
int roster_named(const struct roster *r);

/* For every rank: a signal (one that ends programs ends an elastic job too); the end (SIGKILL after
 * grace_ms). */
void roster_signal(struct roster *r, int signo);
void roster_stop(struct roster *r, const char *reason, int grace_ms);

/* Every member has ended and none is to come. One that is to come may have no host to come on. */
bool roster_done(const struct roster *r);

/* --reset-limit allows no more replacements. */
bool roster_limit_reached(const struct roster *r);

/* The job's exit code so far, 128 + n for a signal: that of roster_culprit(). */
int roster_exit_code(const struct roster *r);

/* ---- elastic jobs --------------------------------------------------------------------------- */

/* What time brings: replacements that are due, joiners that are waited for no longer, survivors
 * that do not answer. To be called a few times a second. */
void roster_tick(struct roster *r, uint64_t now);

/* Planned changes. 0 and the change's number in *ret_change, -ERANGE with the reason in err;
 * -ENOENT: no such rank or host; -EOPNOTSUPP: a fixed job. Nothing has changed on failure. */
int roster_scale(struct roster *r, int np, uint64_t now, uint32_t *ret_change, struct err *err);
int roster_drain_rank(struct roster *r, int rank, uint64_t now, uint32_t *ret_change,
                      struct err *err);
int roster_drain_host(struct roster *r, const char *host, uint64_t now, uint32_t *ret_change,
                      struct err *err);

/* roster_hosted.c: of a hosted roster. min, max and target may all change; what cannot be is
 * -ERANGE, and nothing has changed. */
int roster_resize(struct roster *r, int min, int max, int target, uint64_t now, struct err *err);

/* The ranks of an agent are to leave at the next boundary, and none is started there any more. The
 * target stays: others come elsewhere. */
void roster_leave(struct roster *r, int agent, const char *text, uint64_t now);

/* roster_hosts.c: hosts that come, and hosts whose slots change, while an elastic job runs. Nobody
 * is started by that: roster_scale() does it. A host that was drained is used again. -ENOENT: it is
 * lost. */
int roster_add_host(struct roster *r, const struct roster_host *host, struct err *err);
int roster_set_slots(struct roster *r, int agent, int slots, struct err *err);

/* Of the ranks on an agent that have no slot any more the highest, -1: none. They go on until they
 * are drained. */
int roster_rank_without_slot(const struct roster *r, int agent);

/* Of the world of the last epoch somebody goes on, or its program has come to its end. */
bool roster_state_is_there(const struct roster *r);

/* "starting", "running", "waiting", "changing", "ending"; what it waits for, "" for nothing. now 0:
 * without seconds that are other ones each time. */
const char *roster_state(const struct roster *r);
void roster_waiting_for(const struct roster *r, uint64_t now, char *dst, size_t size);

/* ---- words ---------------------------------------------------------------------------------- */

/* "rank 3", "rank 3 (member 7)", "member 7". */
void roster_name(int rank, int member, char *dst, size_t size);

/* "NAME on h2 (pid 71) was ended by signal 9 (SIGKILL)" and the like, for an agent, which has no
 * roster. text: why it could not start, "" otherwise. */
void roster_end_text(const char *name, const char *host, int pid, int code, bool early,
                     const char *text, char *dst, size_t size);
void roster_describe_end(const struct roster *r, int member, char *dst, size_t size);

/* Members in the given state as "0, 2-5 (h1), 8 (h2)"; "none". */
void roster_list(const struct roster *r, enum rank_state state, char *dst, size_t size);

#endif
