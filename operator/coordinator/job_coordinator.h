/* SPDX-License-Identifier: Apache-2.0
 *
 * job_coordinator: the coordinator of one job: its pods, their agents, its roster. Owned by the
 * plane, on its thread. job_coordinator.c lets agents join and decides which are lost,
 * job_coordinator_gather.c waits for agents after another operator has led, job_coordinator_facts.c
 * and job_coordinator_findings.c report on the job.
 */
#ifndef HVD_OPERATOR_COORDINATOR_JOB_COORDINATOR_H
#define HVD_OPERATOR_COORDINATOR_JOB_COORDINATOR_H

#include "core/base/list.h"
#include "core/member/roster.h"
#include "core/member/service.h"
#include "operator/coordinator/epoch_history.h"
#include "operator/coordinator/gather.h"
#include "operator/coordinator/plane.h"

/* Results of token reviews for one pod, by the token's hash. */
struct job_coordinator_token {
    uint8_t good[PLANE_HASH_SIZE], bad[PLANE_HASH_SIZE], asked[PLANE_HASH_SIZE];
    uint64_t good_at, bad_at, asked_at; /* clock_ns(); 0: none */
    uint64_t id;                        /* id of the review in flight, 0: none */
};

struct job_coordinator_pod {
    char uid[PLANE_UID_MAX], name[PLANE_UID_MAX];
    int worker, attempt;
    bool bound, deleting, finished;
    int agent;          /* index in the roster of the pod's last agent; -1: none */
    uint64_t closed_at; /* clock_ns() at which the agent's connection closed; 0: it is open */
    struct job_coordinator_token token;
};

struct job_coordinator {
    char uid[PLANE_UID_MAX];
    uint8_t key_hash[PLANE_HASH_SIZE]; /* SHA-256 of the job's key */
    uint64_t group;                    /* number of the job's long polls in the HTTP server */
    int workers, min, max, slots, start_timeout;
    bool keep_places;
    int64_t term;
    struct gather *gather; /* of all jobs of the plane */
    bool gathering;        /* the roster is, or was until the last tick, being rebuilt */
    uint64_t gather_begun; /* clock */
    uint64_t gather_waits; /* clock: since when the job misses agents while ranks wait; 0: it does
                              not */
    bool ended; /* the job has finished; this is freed once job_coordinator_end() returns true */
    uint64_t ended_at;
    struct roster roster;
    struct service service;
    struct job_coordinator_pod **pods; /* [npods] */
    int npods, pods_cap;
    uint64_t joins, rejoins, losses;
    struct epoch_history history;
    int seen_notes;       /* roster notes for which long polls were answered */
    uint32_t seen_world;  /* epoch for which long polls were answered */
    uint64_t fingerprint; /* the job's fingerprint when plane_config.changed() was last called */
    bool dirty;           /* changed() is to be called */
    bool urgent;          /* an agent or pod appeared or vanished: the plane ticks at once */
    bool first_known;
    int first_rank, first_worker, first_code;
    char first_text[512];
    /* Long polls that began before number wake_before are being answered, in portions. */
    bool waking;
    uint64_t wake_before;
    void (*changed)(void *arg, struct job_coordinator *job);
    void *arg;
    struct list node;
};

/* gather: outlives the job. changed: called while a request is handled, when the roster may have
 * changed. */
int job_coordinator_create(struct job_coordinator **ret, const struct plane_job *job, int64_t term,
                           struct gather *gather,
                           void (*changed)(void *arg, struct job_coordinator *job), void *arg,
                           struct err *err);
void job_coordinator_destroy(struct job_coordinator *c);

/* Updates a job that the plane has already; job as for plane_job(). */
int job_coordinator_update(struct job_coordinator *c, const struct plane_job *job, struct err *err);

struct job_coordinator_pod *job_coordinator_find_pod(const struct job_coordinator *c,
                                                     const char *uid);
int job_coordinator_pod(struct job_coordinator *c, const struct plane_pod *pod, struct err *err);
void job_coordinator_pod_gone(struct job_coordinator *c, const char *uid);

/* To be called when the pod's agent has sent a request; when an agent's connection has closed. */
void job_coordinator_heard(struct job_coordinator_pod *pod);
void job_coordinator_closed(struct job_coordinator *c, const char *agent, uint64_t now);

/* Checks time limits. forgive: the plane itself was late, so silence since its last tick is not
 * held against agents. True: tick again within 10 ms. */
bool job_coordinator_tick(struct job_coordinator *c, bool forgive, uint64_t now);

/* job_coordinator_epochs.c: call it after anything that may have begun a new epoch. */
void job_coordinator_count_epochs(struct job_coordinator *c);

/* Declares an agent lost that has joined or is away; text says how. Otherwise does nothing. */
void job_coordinator_lose(struct job_coordinator *c, int agent, const char *text, uint64_t now);

/* The pod of the agent whose uid is "POD-UID.something"; NULL: no such pod. */
struct job_coordinator_pod *job_coordinator_pod_of(const struct job_coordinator *c,
                                                   const char *agent);

/* ---- job_coordinator_gather.c ---------------------------------------------------------------- */

/* Number of agents that the job's roster must take back while it is rebuilt; 0 afterwards. */
int job_coordinator_awaits(const struct job_coordinator *c);

/* When the roster stops to wait for agents. waiting: ranks wait, so that a missing agent holds them
 * up. */
uint64_t job_coordinator_gather_until(struct job_coordinator *c, bool waiting, uint64_t now);

/* An agent has rejoined. */
void job_coordinator_came_back(struct job_coordinator *c, uint64_t now);

/* Call it when the roster may have been rebuilt: from then on agents that have not come count as
 * silent, and those without a pod as lost. */
void job_coordinator_end_gathering(struct job_coordinator *c, uint64_t now);

/* ---------------------------------------------------------------------------------------------- */

/* Tells agents to end their ranks. True: no live agent remains, or FAREWELL_S have passed since the
 * first call. */
bool job_coordinator_end(struct job_coordinator *c, uint64_t now);

/* A hash of everything that plane_facts() reports and that is worth a call of changed(). */
uint64_t job_coordinator_fingerprint(const struct job_coordinator *c);

/* job_coordinator_findings.c: calls back with each current finding and the name of its pod. */
void job_coordinator_findings(const struct job_coordinator *c,
                              void (*each)(void *arg, const char *pod, const struct finding *f),
                              void *arg);

void job_coordinator_facts(const struct job_coordinator *c, struct plane_facts *ret);
int job_coordinator_count_agents(const struct job_coordinator *c);

#endif
