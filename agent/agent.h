/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: one host's part of a job: joins the coordinator, starts ranks, relays frames between them
 * and the coordinator, ends them. One thread, one loop. main_hvd-agent.c runs it.
 *
 * agent.c has start, main loop and end; agent_ranks.c the ranks; agent_relay.c their control
 * frames; agent_polls.c the coordinator's events and rosters; agent_elastic.c ranks that start,
 * leave or die while others train; agent_rejoin.c what a new coordinator is told; agent_output.c
 * the ranks' output; agent_doctor.c the doctor; agent_drain.c SIGTERM; agent_pod.c the differences
 * in a pod.
 */
#ifndef HVD_AGENT_AGENT_H
#define HVD_AGENT_AGENT_H

#include <stdbool.h>

#include "agent/binding.h"
#include "agent/config.h"
#include "agent/lifelines.h"
#include "agent/outbox.h"
#include "agent/preflight.h"
#include "agent/printer.h"
#include "agent/rank.h"
#include "agent/sink.h"
#include "agent/peer_silence.h"
#include "core/base/loop.h"
#include "core/member/client.h"
#include "core/member/pages.h"
#include "core/member/roster.h"
#include "diagnostics/watch.h"

#define END_FINAL UINT32_MAX /* as an epoch: the process has ended */

/* The end of a rank of the job, as far as this agent knows it. */
struct member_end {
    bool known, lost; /* lost: ranks that work with it must be told */
    uint32_t epoch;   /* holds for rosters up to this one; a later one may list the member again */
    int code;
    char text[512];
};

/* Output of ranks that hvdrun has not taken, after the pipe to hvdrun broke. */
struct output {
    bool broken;     /* the pipe is broken */
    struct buf held; /* whole frames that wait to be posted */
    uint64_t lost;   /* bytes dropped and not yet reported to hvdrun */
    uint64_t seq;    /* of the last body that hvdrun took */
    bool posting;    /* a body is in flight: the first sent bytes of held */
    size_t sent;
    uint64_t sent_lost;
    bool sent_end;
    int posted_term; /* agent.terms when it was sent */
    bool ending;     /* no more output will come */
    bool delivered;  /* hvdrun has received the end */
    struct loop_timer retry;
};

struct agent {
    struct agent_config config;
    struct loop loop;
    struct client *client;
    struct outbox outbox;
    struct sink out; /* standard output, in frames */
    struct output output;
    struct loop_fd signals;
    struct loop_timer tick; /* checks the coordinator's silence and whether the agent is done */
    struct welcome_body welcome;
    struct rank **ranks; /* [nranks] */
    int nranks;
    int nstarted; /* how many of welcome.assignments were started */
    struct loop_timer start_timer;
    uint64_t late_signals;   /* bit mask of signals for ranks that are not started yet */
    struct member_end *ends; /* [nends], indexed by member */
    int nends;
    uint32_t epoch;            /* of the last roster that ranks got */
    struct roster_body roster; /* the last roster, in an elastic job */
    int *world;                /* members of the last roster [nworld] */
    int nworld;
    uint32_t change;            /* number of the last planned change announced to ranks */
    struct binding binding;     /* CPU binding of local ranks */
    const char *cwd;            /* directory of ranks; NULL: no rank was started yet */
    struct lifelines lifelines; /* in an elastic job */
    struct loop_timer cards_timer;
    struct loop_timer retry; /* of a failed join */
    bool polling_roster, polling_events;
    int terms;                    /* how many coordinators this agent has rejoined */
    int roster_term, events_term; /* terms when the poll was sent: an older answer is ignored */
    char *rejoin_text;            /* body of a rejoin in flight; NULL: none */
    uint64_t notes_seq;
    struct peer_silence silence; /* how long the coordinator has been silent */
    char unanswered[256];        /* why the last request got no answer */
    bool silence_reported;
    bool joined;
    bool refused; /* the doctor found a failure: no rank is started */
    struct preflight preflight;
    struct findings findings; /* findings of this host that are not cleared */
    bool has_machine;
    struct machine machine;
    struct watch *watch; /* NULL: no watch runs */
    struct loop_timer watch_timer;
    struct pages *pages; /* NULL: no HTTP pages are served */
    bool stopping;       /* the ranks are being ended */
    bool draining;       /* ranks were asked to leave; the agent ends with the last */
    struct loop_timer drain_timer, drain_retry;
    bool abandoned; /* the coordinator counts as lost: end without reporting to it */
    /* In a pod: */
    struct printer printer;
    bool printing;          /* printer is initialized */
    bool terminated;        /* SIGTERM was received */
    uint64_t progress_at;   /* clock_ns() of the last progress report */
    int worker_code;        /* exit code of the first rank that failed, 0: none did */
    uint64_t unknown_since; /* clock_ns() since when the operator answers that it does not know this
                               pod; 0: it does */
    uint64_t leave_at;      /* deadline for the last report and output; 0: not set */
    int rc;
    struct err err;
};

/* Runs until the job's part on this host has ended. Takes ownership of config. Returns 0, or -errno
 * with err when the agent itself failed; in a pod the exit code. */
int agent_run(struct agent *a, struct agent_config *config, struct err *err);

/* Ends all ranks: SIGTERM now, SIGKILL after grace_ms. */
void agent_stop_ranks(struct agent *a, int grace_ms);

/* The agent has failed: ends its ranks, then itself. */
void agent_fail(struct agent *a, const struct err *err);

/* Runs the tick soon, which checks whether the agent is done. */
void agent_wake(struct agent *a);

/* Notes that the coordinator has answered. */
void agent_answered(struct agent *a);

/* Notes that the coordinator did not answer, or answered 503. */
void agent_unanswered(struct agent *a, const struct client_answer *answer);

/* agent_ranks.c */
int agent_start_ranks(struct agent *a, struct err *err);
bool agent_is_starting(const struct agent *a); /* some of the first ranks are not started yet */
void agent_signal_ranks(struct agent *a, int signo);
int agent_add_rank(struct agent *a, const struct assignment *assignment, struct err *err);
void agent_drop_rank(struct rank *rank);
void agent_reap(struct agent *a);
void agent_pause_output(struct agent *a, bool pause);

/* agent_relay.c */
void agent_on_frame(void *arg, struct rank *rank, struct ctl_frame *frame);
void agent_install_roster(struct agent *a, const struct roster_body *roster);

/* Records the end of a member and tells the ranks here that are concerned. epoch: as in struct
 * end. Does nothing if the end is already known for this or a later epoch. */
void agent_record_end(struct agent *a, int member, uint32_t epoch, bool lost, int code,
                      const char *text);

/* True for a rank that is in the current epoch: it said HELLO and has got a roster. False for a
 * joiner that has only got NUMBERS. */
bool rank_in_epoch(const struct rank *rank);

/* Posts the cards that wait, unless another rank here is about to send its card. */
void agent_consider_cards(struct agent *a);

/* agent_drain.c: on SIGTERM asks the ranks to leave at a step boundary, or ends them. */
void agent_drain(struct agent *a);

/* agent_elastic.c */

/* Writes how the user knows the rank: "rank 3", "rank 3 (member 7)". */
void agent_name(const struct rank *rank, char *dst, size_t size);

/* The rank with this member number, ended or not, until it is freed; else NULL. */
struct rank *agent_find(struct agent *a, int member);

void agent_start_member(struct agent *a, int member, int local_rank);

/* Tells a member that the job continues without it. It has 10 s to exit, then it is ended. */
void agent_send_leave(struct agent *a, int member, const char *text);
void agent_evict(struct agent *a, int member, const char *text);

/* Tells a joiner which numbers it would get if it joined now. */
void agent_send_numbers(struct agent *a, int member, const struct rank_numbers *numbers);

/* Tells the ranks that a planned change waits for the next step boundary. */
void agent_announce(struct agent *a, uint32_t change);
void agent_send_change(struct agent *a, struct rank *rank);

/* The process of a rank is dead, or is stopped and must be killed (evict), and is not reaped yet.
 * Tells the ranks here and the coordinator at once. text says what happened, for evict. */
void agent_declare_dead(struct agent *a, struct rank *rank, bool evict, const char *text);

/* agent_rejoin.c: the coordinator answered that it does not know this agent. Returns true if the
 * agent rejoins and tells the coordinator what it knows. */
bool agent_rejoin(struct agent *a);

/* agent_output.c */
void agent_output_init(struct agent *a);
void agent_output_fini(struct agent *a);

/* Passes on a frame with output of a rank. */
void agent_print(struct agent *a, const struct buf *frame);

/* The reader of standard output is gone: keeps output for the next hvdrun. */
void agent_break_output(struct agent *a);

/* Called at each tick: notices a broken pipe, then keeps and posts the output. */
void agent_watch_output(struct agent *a);

/* At the end: has hvdrun received all output, or is there no hvdrun? late: the time for the last
 * report is over, so a silent hvdrun counts as none. */
bool agent_output_delivered(struct agent *a, bool late);

/* agent_doctor.c */

/* Starts the ranks and the preflight, in the order that the doctor's policy asks for. */
int agent_begin(struct agent *a, struct err *err);
void agent_end_doctor(struct agent *a);
bool agent_awaits_doctor(const struct agent *a);

/* agent_pages.c: serves /metrics, /ready and /healthz if the configuration asks for them. */
int agent_open_pages(struct agent *a, struct err *err);

/* agent_pod.c */
int agent_pod_init(struct agent *a, struct err *err);
void agent_pod_fini(struct agent *a);
void agent_pod_print(struct agent *a, struct rank *rank, enum frame_stream stream, const void *data,
                     size_t n);
bool agent_pod_printed(struct agent *a, bool late);

/* A rank has ended. If it failed, ends the other ranks too: the operator replaces whole pods. */
void agent_pod_exited(struct agent *a, const struct rank *rank);

/* Called when all ranks here have ended: will no other rank be started in this pod? */
bool agent_pod_is_over(const struct agent *a);

/* The operator answered that it does not know this pod. True while it may still learn of it. */
bool agent_pod_may_come(struct agent *a);
int agent_pod_code(const struct agent *a);

/* agent_lifelines.c, for elastic jobs. A rank gets a lifeline when it says HELLO without having
 * one. */
int agent_open_lifelines(struct agent *a, struct err *err);
void agent_give_lifeline(struct agent *a, struct rank *rank);

/* agent_polls.c */
void agent_poll_events(struct agent *a);
void agent_poll_roster(struct agent *a);

#endif
