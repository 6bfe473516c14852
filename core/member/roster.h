/* SPDX-License-Identifier: Apache-2.0
 *
 * roster: the members of a job and their states. Pure: events come in, notes and epochs go out. No
 * I/O, and no clock but the one it is given. Owned by the coordinator; one thread.
 *
 * A *member* is a rank process; its number is never used again. Its *rank* is its position in the
 * world of the current epoch. Everything that agents must know is written to a growing list of
 * notes, numbered from 1.
 *
 * Fixed job: epoch e + 1 is published when every rank has sent its card for it (hvd_init; again
 * after hvd_shutdown). Elastic job: README.md has the rules.
 *
 * The roster consists of parts, each with a header (roster_members.h and so on). The other files
 * work on the whole, in layers: README.md has the table.
 */
#ifndef HVD_MEMBER_ROSTER_H
#define HVD_MEMBER_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/member/protocol.h"
#include "core/member/roster_agents.h"
#include "core/member/roster_ends.h"
#include "core/member/roster_changes.h"
#include "core/member/roster_members.h"
#include "core/member/roster_next.h"
#include "core/member/roster_notes.h"
#include "core/member/roster_starts.h"
#include "core/member/roster_work.h"

/* The parameters of an elastic job. */
struct roster_elastic {
    int min, max;         /* ranks */
    int reset_limit;      /* the most replacements, 0: no limit */
    uint64_t start_limit; /* ns that ready members wait for members that start */
    /* ns before a slot gets a replacement: the first time, and the most; 0: 1 s and 60 s. */
    uint64_t backoff_first, backoff_max;
    bool keep_places; /* a joiner takes the place of a lost rank (roster_places.h) */
};

/* The last published epoch and its cause. */
struct roster_last {
    uint32_t epoch;
    char cause[512];
    uint64_t at;   /* clock */
    uint64_t took; /* ns from the loss or announcement to the publication */
    bool lost;     /* the epoch was published because of a loss */
};

/* An epoch is term << 20 | number. A new coordinator has a higher term, so its epochs are higher
 * than all earlier ones. The number grows by 1 with each epoch and does not restart with a new
 * term. If hvd-operator's term wraps at 4096, the epoch still grows by 1. */
#define ROSTER_TERM_SHIFT 20
#define ROSTER_TERM_MAX   4095

static inline uint32_t roster_epoch_number(uint32_t epoch)
{
    return epoch & ((1u << ROSTER_TERM_SHIFT) - 1);
}

/* What the previous coordinator has stored in a file. Agents know everything else. */
struct roster_saved {
    uint32_t term;   /* term of the new coordinator */
    uint32_t change; /* the last number of a planned change that it gave */
    int target, nmembers, restarts;
    int nleaving;
    const int *leaving; /* members that it has asked to leave */
    /* Only target is stored; agents report the numbers of members. */
    bool target_only;
};

struct roster {
    char job[MEMBER_NAME_MAX];
    uint8_t key[MEMBER_KEY_SIZE];
    int size; /* size of the world; before the first epoch: its intended size */
    struct roster_members members;
    struct roster_agents agents;
    uint32_t epoch;      /* the last published epoch, 0: none */
    uint32_t term;       /* number of this coordinator of the job, the first is 0 */
    bool rebuilding;     /* it gathers what agents know, and decides nothing */
    uint64_t rebuild_by; /* clock: the roster does not wait longer for agents */
    /* While the roster is rebuilt: the newest roster that an agent has. */
    struct roster_body gathered;
    /* roster of the last published epoch, with its own copies of the cards */
    struct roster_body world;
    struct roster_ends ends; /* ends of members */
    bool stopping; /* the job is being stopped: later failures are a consequence of that */
    struct roster_notes notes;

    /* Elastic jobs. */
    bool is_elastic;
    bool closing; /* a signal ends the job: no member is started any more, and failures count */
    /* Hosts are added and removed by a cluster, which also decides what a failure means for the
     * job. Then a target may exceed the available slots, a host that is removed may leave fewer
     * than min ranks, and a failed member is always replaced. */
    bool hosted;
    int arriving; /* hosted: slots on hosts that are being added */
    struct roster_elastic elastic;
    int target;        /* wanted number of ranks */
    bool had_boundary; /* some rank has reached a boundary since this coordinator started */
    struct roster_changes changes;
    struct roster_next next;
    struct roster_starts starts; /* has room for elastic.max, or more */
    uint64_t departed_done;    /* the largest number of finished operations that any BYE reported */
    int restarts;              /* number of replacements so far */
    struct roster_saved saved; /* used while rebuilding; leaving is owned */
    struct roster_last last;
    struct roster_work work;
};

/* Creates a roster. Its size is the sum of the hosts' ranks; members are numbered host by host. */
int roster_init(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                const struct roster_host *hosts, int nhosts, struct err *err);
void roster_fini(struct roster *r);

/* Creates a hosted roster without hosts; add them with roster_add_host(). size: wanted number of
 * ranks. The caller must make it elastic. */
int roster_init_hosted(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                       int size, struct err *err);

/* Call before any event. 1 <= min <= size <= max. */
int roster_make_elastic(struct roster *r, const struct roster_elastic *elastic, struct err *err);

/* Replaces roster_init() and roster_make_elastic() for an elastic job that is already running.
 * Hosts have no ranks here; slots says how many they may have. The roster does nothing but take
 * agents back until every agent that is not lost has joined with what it knows, or until the time
 * rebuild_by, which the caller may move. Then it continues, within the last join or in
 * roster_tick(). Meanwhile roster_cards(), and roster_report() for anything but progress, return
 * -ENOENT: the agent joins again with what it knows by then. Agents of the newest world that have
 * not joined are lost then; in a hosted roster they are away, and the owner gives them up or
 * roster_join() takes them back. key: for a first world, if no agent has been in one. */
int roster_begin_rebuild(struct roster *r, const char *job, const uint8_t key[MEMBER_KEY_SIZE],
                         const struct roster_host *hosts, int nhosts,
                         const struct roster_elastic *elastic, const struct roster_saved *saved,
                         uint64_t rebuild_by, struct err *err);

/* The index of the agent that the note is for; -1: all agents. */
int roster_note_agent(const struct roster *r, const struct note *n);

/* Returns the agent's index, or -ENOENT. */
int roster_find(const struct roster *r, const char *uid);

/* True while the roster gathers and an agent has reported a rank that waits for others of the
 * newest epoch: it has seen a loss, or is at a boundary that the others reach within milliseconds.
 */
bool roster_gathers_waiting(const struct roster *r);

/* Whether a rebuilt roster can take in an agent that it does not know, with what it tells. -ESTALE:
 * a rank of the agent was in an epoch without which the job goes on, or in one that this roster
 * does not know. -EINVAL: told is inconsistent, or contradicts what the roster has decided. */
int roster_check_late(const struct roster *r, const struct rejoin *told, struct err *err);

/* An agent has joined. -EEXIST: it has joined before with another pid, or is lost. -ESTALE,
 * -EINVAL: as roster_check_late(). May take over body->rejoin, which is NULL then. */
int roster_join(struct roster *r, struct join_body *body, uint64_t now, struct err *err);

/* Each applies the items of a body in order and stops at the first illegal one: -EPROTO with a
 * text. A body that was applied before (same seq) returns 0 without effect. Cards for a past epoch
 * in a fixed job: -ESTALE. */
int roster_cards(struct roster *r, const struct cards_body *body, uint64_t now, struct err *err);
int roster_report(struct roster *r, const struct report_body *body, uint64_t now, struct err *err);
int roster_findings(struct roster *r, const struct findings_body *body, uint64_t now,
                    struct err *err);

/* The agent is lost; text says how ("ssh exited with code 255"). */
void roster_agent_lost(struct roster *r, int agent, const char *text, uint64_t now);

/* Tells the other ranks not to wait for this member, which did not join in time; text says so. */
void roster_give_up(struct roster *r, int member, const char *text);

/* The member whose end decides the job's exit code; -1: none, the code is 0. rank_end.h has the
 * rule. */
int roster_culprit(const struct roster *r);

/* The member whose end explains the job's failure: the culprit, or the rank whose leaving made the
 * culprit fail. -1: none. */
int roster_named(const struct roster *r);

/* Sends every rank a signal (one that ends programs also ends an elastic job), or ends every rank
 * (SIGKILL after grace_ms). */
void roster_signal(struct roster *r, int signo);
void roster_stop(struct roster *r, const char *reason, int grace_ms);

/* True when every member has ended and none is to be started. A member that waits for a host with a
 * free slot is still to be started. */
bool roster_done(const struct roster *r);

/* True when --reset-limit allows no more replacements. */
bool roster_limit_reached(const struct roster *r);

/* The job's exit code so far: that of roster_culprit(), 128 + n for a signal. */
int roster_exit_code(const struct roster *r);

/* ---- elastic jobs --------------------------------------------------------------------------- */

/* Handles time limits: replacements that are due, joiners that have waited long enough, survivors
 * that do not answer. Call a few times per second. */
void roster_tick(struct roster *r, uint64_t now);

/* Planned changes. Each returns 0 with the change's number in *ret_change; -ERANGE with the reason
 * in err; -ENOENT: no such rank or host; -EOPNOTSUPP: the job has a fixed size. On failure nothing
 * has changed. */
int roster_scale(struct roster *r, int np, uint64_t now, uint32_t *ret_change, struct err *err);
int roster_drain_rank(struct roster *r, int rank, uint64_t now, uint32_t *ret_change,
                      struct err *err);
int roster_drain_host(struct roster *r, const char *host, uint64_t now, uint32_t *ret_change,
                      struct err *err);

/* Changes min, max and target of a hosted roster. -ERANGE: impossible, nothing has
 * changed. */
int roster_resize(struct roster *r, int min, int max, int target, uint64_t now, struct err *err);

/* Asks the ranks of an agent to leave at the next boundary; no member is started there any more.
 * The target stays, so replacements start on other agents. */
void roster_leave(struct roster *r, int agent, const char *text, uint64_t now);

/* While an elastic job runs: roster_add_host() adds a host; roster_set_slots() changes the slots of
 * one, which may then be used again if it was drained. -ENOENT: its agent is lost. Neither starts a
 * member: roster_scale() does that. */
int roster_add_host(struct roster *r, const struct roster_host *host, struct err *err);
int roster_set_slots(struct roster *r, int agent, int slots, struct err *err);

/* The highest rank on an agent that exceeds the agent's present number of slots; -1: none. Such
 * ranks continue until they are drained. */
int roster_rank_without_slot(const struct roster *r, int agent);

/* True while a rank of the last world has the training state or has called hvd_shutdown() and goes
 * on, and when the program has finished. */
bool roster_state_is_there(const struct roster *r);

/* The job's state: "starting", "running", "waiting", "changing", "ending". roster_waiting_for()
 * writes what it waits for, "" for nothing; now 0: without a countdown, so that the text stays the
 * same between calls. */
const char *roster_state(const struct roster *r);
void roster_waiting_for(const struct roster *r, uint64_t now, char *dst, size_t size);

/* ---- texts ---------------------------------------------------------------------------------- */

/* "rank 3", "rank 3 (member 7)", "member 7". */
void roster_name(int rank, int member, char *dst, size_t size);

/* Describes a rank's end, such as "NAME on h2 (pid 71) was ended by signal 9 (SIGKILL)".
 * roster_end_text() is for an agent, which has no roster. text: why it could not start, ""
 * otherwise. */
void roster_end_text(const char *name, const char *host, int pid, int code, bool early,
                     const char *text, char *dst, size_t size);
void roster_describe_end(const struct roster *r, int member, char *dst, size_t size);

/* Members in the given state as "0, 2-5 (h1), 8 (h2)"; "none". */
void roster_list(const struct roster *r, enum rank_state state, char *dst, size_t size);

#endif
