/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator: hvdrun while a job runs: serves the roster, launches agents, prints the ranks'
 * output, forwards signals, decides how the job ends. One thread, one loop. main_hvdrun.c runs it.
 *
 * coordinator.c has main loop and decisions, coordinator_open.c setup and teardown,
 * coordinator_agents.c the agents' pipes and exits, coordinator_findings.c the doctors' findings,
 * coordinator_elastic.c the time limits and messages of an elastic job, coordinator_discovery.c
 * hosts that appear and disappear, coordinator_attach.c the takeover of a job from another hvdrun.
 */
#ifndef HVD_AGENT_COORDINATOR_H
#define HVD_AGENT_COORDINATOR_H

#include <stdbool.h>

#include "agent/discovery.h"
#include "agent/explain.h"
#include "agent/job.h"
#include "agent/jobs.h"
#include "agent/saved_job.h"
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
    char *ca_pem; /* NULL: no remote host at the start */
    struct authority tcp_authority[COORDINATOR_SERVERS];
    char *tcp_ca[COORDINATOR_SERVERS]; /* CAs of servers opened later; NULL: ca_pem */
    char dir[256];                     /* private directory with the Unix socket; "": not made */
    int dir_lock;                      /* holds the lock of dir while this hvdrun lives; -1: none */
    char unix_path[300];
    char token[65];
    struct launched *agents; /* [agents_max], the first roster.agents.n in use; never moved */
    int first_hosts;         /* number of hosts that the job began with */
    int agents_max;
    int ended; /* agents whose process has ended and whose pipes are closed */
    struct printer printer;
    struct explain explain;
    struct loop_fd signals;
    struct loop_timer tick, news;
    uint64_t watched; /* clock_ns() of the last check of the agents */
    uint64_t started, failed_at, kill_at, abandon_at; /* clock_ns() values; 0: not set */
    bool flushing;     /* the job has ended, only output is left to write */
    bool stopped;      /* the roster was told to end all ranks */
    bool signaled;     /* ranks were sent a signal */
    int interrupts;    /* SIGINTs received */
    int output_lost;   /* exit code for output that could not be written; 0: none */
    char absent[1200]; /* ranks that did not call hvd_init() in time; "" */
    char reason[1024]; /* why the job failed, if no rank caused it; "" */
    /* What -v has printed so far: */
    int said_running;
    uint32_t said_epoch;
    /* In an elastic job: */
    int said_notes;           /* notes of the roster that were handled */
    bool said_waiting;        /* "waiting for" was printed */
    uint32_t said_state_lost; /* epoch for which the loss of the state was printed */
    int lost_seconds;         /* agents outlive this process for so long */
    bool gave_up;             /* it waited longer than its limit */
    char change[700]; /* the line about the last epoch, held until a dead rank's exit code is known
                       */
    uint64_t change_held; /* clock_ns() since when it is held; 0: not held */
    bool attached;        /* another hvdrun began the job */
    bool said_attached;
    uint64_t saved_hash; /* hash of what coordinator_save_job() wrote last */
    bool save_failed;    /* a failure of coordinator_save_job() was printed */
    struct discovery discovery;
    /* Retry of lost hosts: when next, when last (clock_ns(); 0: none), and the pause in ms. */
    uint64_t retry_at, tried_at, retry_ms;
};

/* Runs the job to its end and returns hvdrun's exit code. err: a failure before ranks ran. */
int coordinator_run(struct coordinator *c, struct job *job, struct err *err);

/* The same for a job whose hvdrun was killed. saved holds the job; lock, from jobs_lock(), is taken
 * over. */
int coordinator_attach(struct coordinator *c, const struct job_entry *entry,
                       struct saved_job *saved, int lock, struct err *err);

/* Fails the job for a reason other than a rank's end. Only the first reason counts. */
void coordinator_fail(struct coordinator *c, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints "hvdrun: ..." on standard error if -v was given at least level times. */
void coordinator_say(struct coordinator *c, int level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* coordinator_findings.c */

/* Prints new findings of the agents' doctors. */
void coordinator_say_findings(struct coordinator *c);

/* Prints the likely cause of the failure, if the ranks' output shows one. */
void coordinator_say_cause(struct coordinator *c);

/* Prints the findings of the host of a failed rank. */
void coordinator_say_host(struct coordinator *c, int rank);

/* coordinator_elastic.c */

/* Applies the time limits of an elastic job and prints its changes. */
void coordinator_watch_elastic(struct coordinator *c);

/* coordinator_discovery.c */

/* Starts the discovery script, if there is one, which then names the hosts. */
int coordinator_discover(struct coordinator *c, struct err *err);

/* No agent is running, but an elastic job will start one again on a host that was lost. */
bool coordinator_may_retry_hosts(const struct coordinator *c);

/* Treats agents that do not join in time as lost, and starts agents on lost hosts again. */
void coordinator_watch_discovery(struct coordinator *c);

/* Can the job continue without an agent that does not join? True for an elastic job that has had an
 * epoch, or whose other hosts have room for its minimum. */
bool coordinator_can_spare(const struct coordinator *c, int agent);

/* coordinator_open.c */

/* Sets the URL at which a new agent reaches this process. Opens another server if none listens on
 * the address that routes to the agent's host. */
int coordinator_reach(struct coordinator *c, int agent, struct err *err);

int coordinator_open(struct coordinator *c, struct err *err);
int coordinator_read_settings(struct coordinator *c, struct err *err);
int coordinator_open_unix(struct coordinator *c, struct err *err);

/* Opens a server on the i-th address; port 0 chooses a free port. */
int coordinator_open_tcp(struct coordinator *c, const struct authority *authority, int i, int port,
                         struct err *err);
void coordinator_close(struct coordinator *c);

/* coordinator_attach.c */

/* Writes the state that another hvdrun would need (saved_job.h), if it has changed. */
void coordinator_save_job(struct coordinator *c);
int coordinator_reopen(struct coordinator *c, const struct job_entry *entry,
                       const struct saved_job *saved, struct err *err);
void coordinator_watch_attached(struct coordinator *c);
bool coordinator_adopted(void *arg, int agent);
int coordinator_take_output(void *arg, int agent, const struct printed_body *body);

/* coordinator_agents.c */

/* The environment for agents of other hosts, with the job's own variables at the end. The caller
 * frees the list but not its entries. NULL: no memory. */
char **coordinator_environment(const struct coordinator *c);

/* Allocates the agents; launches none. */
int coordinator_make_agents(struct coordinator *c, struct err *err);
int coordinator_launch(struct coordinator *c, struct err *err);

/* Launches one more agent, for the last of the job's hosts. index is its index in agents and in the
 * roster. */
int coordinator_launch_more(struct coordinator *c, int index, struct err *err);
void coordinator_reap(struct coordinator *c);
void coordinator_reap_left(struct launched *l);
void coordinator_pause(struct coordinator *c, bool pause);
void coordinator_watch_agents(struct coordinator *c);

#endif
