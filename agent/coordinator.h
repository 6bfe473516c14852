/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator: hvdrun at work: the roster's server, the agents it launched, the ranks' output,
 * signals, and how it all ends. One thread, one loop. main_hvdrun.c runs it.
 *
 * coordinator.c has its life and its decisions, coordinator_open.c what it sets up,
 * coordinator_agents.c the agents' pipes and ends, coordinator_findings.c what their doctors found,
 * coordinator_elastic.c what time brings to an elastic job, coordinator_discovery.c hosts that come
 * and go, coordinator_attach.c a job that another hvdrun has begun.
 */
#ifndef HVD_AGENT_COORDINATOR_H
#define HVD_AGENT_COORDINATOR_H

#include <stdbool.h>

#include "agent/discovery.h"
#include "agent/explain.h"
#include "agent/job.h"
#include "agent/jobs.h"
#include "agent/keep.h"
#include "agent/launch.h"
#include "agent/printer.h"
#include "core/base/loop.h"
#include "core/member/roster.h"
#include "core/member/server.h"
#include "core/member/service.h"

#define COORDINATOR_SERVERS 8

struct coordinator {
    struct job *job;
    struct loop loop;
    struct roster roster;
    struct service service;
    struct server *unix_server;
    struct server *tcp_servers[COORDINATOR_SERVERS];
    char tcp_addresses[COORDINATOR_SERVERS][64];
    int ntcp;
    char *ca_pem; /* NULL: no other host at the start */
    struct authority tcp_authority[COORDINATOR_SERVERS];
    char *tcp_ca[COORDINATOR_SERVERS]; /* of servers that came later; NULL: ca_pem */
    char dir[256];                     /* private, holds the Unix socket; "": not made */
    int dir_lock;                      /* of dir, as long as this hvdrun lives; -1: none */
    char unix_path[300];
    char token[65];
    struct launched *agents; /* [agents_max], roster.nagents of them used: they do not move */
    int first_hosts;         /* of the job's: those of its beginning */
    int agents_max;
    int ended; /* agents that ended, with their pipes */
    struct printer printer;
    struct explain explain;
    struct loop_fd signals;
    struct loop_timer tick, news;
    uint64_t watched;                                 /* clock: when agents were looked at last */
    uint64_t started, failed_at, kill_at, abandon_at; /* clocks; 0: not set */
    bool flushing;                                    /* only output is left */
    bool stopped;                                     /* the roster was told to stop */
    bool signaled;                                    /* a signal went to the ranks */
    int interrupts;                                   /* SIGINTs so far */
    int output_lost;   /* exit code where output could not be written; 0: it could */
    char absent[1200]; /* which ranks did not come to hvd_init in time; "" */
    char reason[1024]; /* why the job failed, where no rank is to blame; "" */
    /* What -v has said: */
    int said_running;
    uint32_t said_epoch;
    /* Of an elastic job: */
    int said_notes;           /* notes that were looked at */
    bool said_waiting;        /* for what it waits */
    uint32_t said_state_lost; /* the epoch that the state was lost with */
    int lost_seconds;         /* agents outlive this process so long */
    bool gave_up;             /* it waited for too long */
    char change[700];         /* the line of the last epoch, while it waits for how a rank died */
    uint64_t change_held;     /* clock: since when; 0: nothing is held */
    bool attached;            /* the job was begun by another hvdrun */
    bool said_attached;
    uint64_t kept;    /* what was written down for another hvdrun, as a sum */
    bool keep_failed; /* said so */
    struct discovery discovery;
    /* Hosts that failed are tried again: when, the last time (clocks; 0: none), the pause. */
    uint64_t again_at, tried_at, again_ms;
};

/* Runs the job to its end: hvdrun's exit code. err is for what went wrong before ranks ran. */
int coordinator_run(struct coordinator *c, struct job *job, struct err *err);

/* The same for a job whose hvdrun was killed: entry, keep, whose job it runs, and the lock of its
 * directory (jobs_lock), which is taken. */
int coordinator_attach(struct coordinator *c, const struct job_entry *entry, struct keep *keep,
                       int lock, struct err *err);

/* The job fails for a reason that is no rank's; the first one counts. */
void coordinator_fail(struct coordinator *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* A line of hvdrun's own ("hvdrun: ...") on standard error; with level, only with so many -v. */
void coordinator_say(struct coordinator *c, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* coordinator_findings.c */

/* Says what is new of what the agents' doctors found. */
void coordinator_say_findings(struct coordinator *c);

/* What made the job fail, as far as the ranks' output tells. */
void coordinator_say_cause(struct coordinator *c);

/* What stands on the host of a rank that failed. */
void coordinator_say_host(struct coordinator *c, int rank);

/* coordinator_elastic.c */

/* What time brings to an elastic job, and what is new of it, for the user. */
void coordinator_watch_elastic(struct coordinator *c);

/* coordinator_discovery.c */

/* From now on the discovery script tells where ranks may run. Does nothing without one. */
int coordinator_discover(struct coordinator *c, struct err *err);

/* No agent is left, but one will be started: an elastic job whose hosts may be well again. */
bool coordinator_may_begin_again(const struct coordinator *c);

/* Hosts that came and whose agents do not, and those that may be tried again. */
void coordinator_watch_discovery(struct coordinator *c);

/* The job can do without an agent that does not join: it is elastic, and has had a world or has
 * room for its minimum on the other hosts. */
bool coordinator_can_spare(const struct coordinator *c, int agent);

/* coordinator_open.c */

/* How the agent of a host that came reaches this process: a server is opened where none listens on
 * the address that routes to it. */
int coordinator_reach(struct coordinator *c, int agent, struct err *err);

int coordinator_open(struct coordinator *c, struct err *err);
int coordinator_read_settings(struct coordinator *c, struct err *err);
int coordinator_open_unix(struct coordinator *c, struct err *err);

/* A server on the i-th address; port 0 chooses one. */
int coordinator_open_tcp(struct coordinator *c, const struct authority *authority, int i, int port,
                         struct err *err);
void coordinator_close(struct coordinator *c);

/* coordinator_attach.c */

/* Writes down what another hvdrun would have to know, if that has changed. */
void coordinator_keep(struct coordinator *c);
int coordinator_reopen(struct coordinator *c, const struct job_entry *entry,
                       const struct keep *keep, struct err *err);
void coordinator_watch_attached(struct coordinator *c);
bool coordinator_adopted(void *arg, int agent);
int coordinator_take_output(void *arg, int agent, const struct printed_body *body);

/* coordinator_agents.c */

/* What another host gets of the environment: a list to free() (entries are lent), with what the job
 * sets at its end. NULL: no memory. */
char **coordinator_environment(const struct coordinator *c);

/* Room for them, nobody is started. */
int coordinator_make_agents(struct coordinator *c, struct err *err);
int coordinator_launch(struct coordinator *c, struct err *err);

/* One more agent, for the last of the job's hosts: index is both its place and the roster's. */
int coordinator_launch_more(struct coordinator *c, int index, struct err *err);
void coordinator_reap(struct coordinator *c);
void coordinator_reap_left(struct launched *l);
void coordinator_pause(struct coordinator *c, bool pause);
void coordinator_watch_agents(struct coordinator *c);

#endif
