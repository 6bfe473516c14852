/* SPDX-License-Identifier: Apache-2.0
 *
 * agent: one host's part of a job: joins the coordinator, starts ranks, relays between them and the
 * coordinator, ends them. One thread, one loop. main_hvd-agent.c runs it.
 *
 * agent.c has its life, agent_ranks.c the ranks, agent_relay.c their control frames, agent_polls.c
 * what the coordinator says, agent_elastic.c ranks that come, go and die while others work on,
 * agent_rejoin.c what another coordinator is told, agent_output.c what ranks print, agent_doctor.c
 * what is wrong with the host, agent_pod.c what is different in a pod.
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
#include "agent/unheard.h"
#include "core/base/loop.h"
#include "core/member/client.h"
#include "core/member/pages.h"
#include "core/member/roster.h"
#include "diagnostics/watch.h"

#define FATE_FINAL UINT32_MAX /* as an epoch: of its process, which is gone */

/* What is known about the end of any rank of the job. */
struct fate {
    bool over, lost; /* lost: who works with it must be told */
    uint32_t
        epoch; /* rosters up to this one are meant; a later one may have it in it, well again */
    int code;
    char text[512];
};

/* Output of ranks when the pipe to hvdrun is broken. */
struct output {
    bool cut;        /* it is */
    struct buf held; /* whole frames */
    uint64_t lost;   /* bytes that were not kept and that nobody was told of */
    uint64_t seq;    /* of the last body that was taken */
    bool posting;    /* a body is under way: sent bytes of held ... */
    size_t sent;
    uint64_t sent_lost;
    bool sent_end;
    int posted_term; /* agent.terms then */
    bool ending;     /* nothing is to come any more */
    bool told;       /* and hvdrun knows it */
    struct loop_timer retry;
};

struct agent {
    struct agent_config config;
    struct loop loop;
    struct client *client;
    struct outbox outbox;
    struct sink out; /* standard output: frames */
    struct output output;
    struct loop_fd signals;
    struct loop_timer tick; /* watches the coordinator and the end */
    struct welcome_body welcome;
    struct rank **ranks; /* [nranks] */
    int nranks;
    int nstarted; /* of welcome.seats: in ranks, now or before */
    struct loop_timer start_timer;
    uint64_t late_signals; /* bits: ranks that are still to be started get these, too */
    struct fate *fates;    /* [nfates], by member */
    int nfates;
    uint32_t epoch;            /* last roster that was handed out */
    struct roster_body roster; /* that one, of an elastic job */
    int *world;                /* its members [nworld] */
    int nworld;
    uint32_t change;            /* the last planned one that was announced */
    struct binding binding;     /* of local ranks */
    const char *cwd;            /* of ranks; NULL: no rank was started yet */
    struct lifelines lifelines; /* of an elastic job */
    struct loop_timer cards_timer;
    struct loop_timer retry; /* of the join */
    bool polling_roster, polling_events;
    int terms;                    /* coordinators that it has told what it knows */
    int roster_term, events_term; /* when the poll was sent: answers of a former one do not count */
    char *rejoin_text;            /* what another coordinator is being told; NULL: nothing */
    uint64_t notes_seq;
    struct unheard unheard; /* of the coordinator */
    char unanswered[256];   /* why not since */
    bool silence_reported;
    bool joined;
    bool refused; /* by the doctor: no rank is started */
    struct preflight preflight;
    struct findings findings; /* that stand on this host */
    bool has_machine;
    struct machine machine;
    struct watch *watch; /* NULL: nothing is watched */
    struct loop_timer watch_timer;
    struct pages *pages; /* NULL: none are served */
    bool stopping;       /* ranks are being ended */
    bool draining;       /* they were asked to leave, and the agent ends with the last one */
    struct loop_timer drain_timer, drain_retry;
    bool orphan; /* the coordinator is gone */
    /* In a pod: */
    struct printer printer;
    bool printing;          /* it was made */
    bool terminated;        /* SIGTERM has come */
    uint64_t progress_at;   /* clock: when it was posted last */
    int worker_code;        /* exit code by the first rank that failed, 0: none did */
    uint64_t unknown_since; /* clock: the operator does not know this pod; 0: it did not say so */
    uint64_t leave_at;      /* no longer than this for the last report and output; 0: not yet */
    int rc;
    struct err err;
};

/* Runs to the end; config is taken. 0, or -errno with err when the agent itself failed. In a pod:
 * the exit code. */
int agent_run(struct agent *a, struct agent_config *config, struct err *err);

/* Ends all ranks: SIGTERM, SIGKILL after grace_ms. */
void agent_stop_ranks(struct agent *a, int grace_ms);

/* The agent cannot go on; it ends its ranks and itself. */
void agent_fail(struct agent *a, const struct err *err);

/* Looks soon whether there is anything left to do. */
void agent_wake(struct agent *a);

/* The coordinator has answered. */
void agent_heard(struct agent *a);

/* No answer, or "not now" (503). */
void agent_unheard(struct agent *a, const struct client_answer *answer);

/* agent_ranks.c */
int agent_start_ranks(struct agent *a, struct err *err);
bool agent_is_starting(const struct agent *a); /* of the first ranks some are still to come */
void agent_signal_ranks(struct agent *a, int signo);
int agent_add_rank(struct agent *a, const struct seat *seat, struct err *err);
void agent_drop_rank(struct rank *rank);
void agent_reap(struct agent *a);
void agent_pause_output(struct agent *a, bool pause);

/* agent_relay.c */
void agent_on_frame(void *arg, struct rank *rank, struct ctl_frame *frame);
void agent_install_roster(struct agent *a, const struct roster_body *roster);

/* epoch: as in struct fate. What is known for it, or for a later one, is not told again. */
void agent_learn_fate(struct agent *a, int member, uint32_t epoch, bool lost, int code,
                      const char *text);

/* It said HELLO and is in a world. Who has a place only is not. */
bool agent_in_world(const struct rank *rank);

/* Sends the cards that wait, if all that will come soon have come. */
void agent_consider_cards(struct agent *a);

/* agent_drain.c: SIGTERM. The ranks leave at a boundary, or are ended. */
void agent_drain(struct agent *a);

/* agent_elastic.c */

/* "rank 3", "rank 3 (member 7)", as the user knows it. */
void agent_name(const struct rank *rank, char *dst, size_t size);

/* The rank of this number that was not dropped, NULL. */
struct rank *agent_find(struct agent *a, int member);

void agent_start_member(struct agent *a, int member, int local_rank);

/* The world goes on without it: it has some seconds to end by itself. */
void agent_dismiss(struct agent *a, int member, const char *text);
void agent_evict(struct agent *a, int member, const char *text);

/* It has joined while others train: where it would be if it came in now. */
void agent_place(struct agent *a, int member, const struct place *place);

/* A planned change waits for the next boundary. */
void agent_announce(struct agent *a, uint32_t change);
void agent_send_change(struct agent *a, struct rank *rank);

/* Its process is gone, or stopped for good and to be ended (evict), before it can be reaped. text:
 * in words what happened, for evict. Everybody is told at once. */
void agent_declare_dead(struct agent *a, struct rank *rank, bool evict, const char *text);

/* agent_rejoin.c: a coordinator does not know this agent. True: it is told what is known here. */
bool agent_rejoin(struct agent *a);

/* agent_output.c */
void agent_output_init(struct agent *a);
void agent_output_fini(struct agent *a);

/* Bytes of a rank's output, as a frame. */
void agent_print(struct agent *a, const struct buf *frame);

/* Nobody reads standard output any more. */
void agent_cut_output(struct agent *a);

/* Now and then. */
void agent_watch_output(struct agent *a);

/* Asked at the end: hvdrun has all of it, or there is none (late: that is clear after a moment). */
bool agent_output_told(struct agent *a, bool late);

/* agent_doctor.c */

/* Starts the ranks and the preflight, in the order that the policy asks for. */
int agent_begin(struct agent *a, struct err *err);
void agent_end_doctor(struct agent *a);
bool agent_awaits_doctor(const struct agent *a);

/* agent_pages.c: /metrics, /ready and /healthz, where the configuration asks for them. */
int agent_open_pages(struct agent *a, struct err *err);

/* agent_pod.c */
int agent_pod_init(struct agent *a, struct err *err);
void agent_pod_fini(struct agent *a);
void agent_pod_print(struct agent *a, struct rank *rank, enum frame_stream stream, const void *data,
                     size_t n);
bool agent_pod_printed(struct agent *a, bool late);

/* A rank has ended. The pod is what is replaced: with one that failed go the others. */
void agent_pod_exited(struct agent *a, const struct rank *rank);

/* All that it has are over (asked when they are): nothing more will come. */
bool agent_pod_is_over(const struct agent *a);

/* The operator does not know this pod: it may hear of it soon. */
bool agent_pod_may_come(struct agent *a);
int agent_pod_code(const struct agent *a);

/* agent_lifelines.c: elastic jobs only. A lifeline is given when a rank says HELLO and has none. */
int agent_open_lifelines(struct agent *a, struct err *err);
void agent_give_lifeline(struct agent *a, struct rank *rank);

/* agent_polls.c */
void agent_poll_events(struct agent *a);
void agent_poll_roster(struct agent *a);

#endif
