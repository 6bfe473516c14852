/* SPDX-License-Identifier: Apache-2.0
 *
 * crew: one job in the plane: its pods, their agents, its roster. Owned by the plane, on its
 * thread. crew.c has who comes and who is lost, job_coordinator_facts.c and
 * job_coordinator_findings.c what became of it.
 */
#ifndef HVD_OPERATOR_COORDINATOR_JOB_COORDINATOR_H
#define HVD_OPERATOR_COORDINATOR_JOB_COORDINATOR_H

#include "core/base/list.h"
#include "core/member/roster.h"
#include "core/member/service.h"
#include "operator/coordinator/epoch_history.h"
#include "operator/coordinator/plane.h"

#define PLANE_UID_MAX   64 /* of a job or pod, with NUL; names of pods too */
#define PLANE_HASH_SIZE 32

/* Tokens of a pod that the API server was asked about. */
struct job_coordinator_token {
    uint8_t good[PLANE_HASH_SIZE], bad[PLANE_HASH_SIZE], asked[PLANE_HASH_SIZE];
    uint64_t good_at, bad_at, asked_at; /* clocks; 0: none */
    uint64_t id;                        /* of the review under way, 0: none */
};

struct job_coordinator_pod {
    char uid[PLANE_UID_MAX], name[PLANE_UID_MAX];
    int worker, attempt;
    bool bound, deleting, over;
    int agent;          /* of the roster, the last that has come from it; -1: none */
    uint64_t closed_at; /* clock: its agent's connection was closed, and it has not come back; 0 */
    struct job_coordinator_token token;
};

struct job_coordinator {
    char uid[PLANE_UID_MAX];
    uint64_t group; /* of its parked requests */
    int workers, min, max, slots, start_timeout;
    int64_t term;
    int gather_ms;
    bool ended; /* it is forgotten as soon as its agents have heard of it */
    uint64_t ended_at;
    struct roster roster;
    struct service service;
    struct job_coordinator_pod **pods; /* [npods] */
    int npods, pods_cap;
    uint64_t joins, rejoins, losses;
    struct epoch_history history;
    int seen_notes; /* that parked requests were woken for; as the next one */
    uint32_t seen_world;
    uint64_t sign; /* job_coordinator_fingerprint() when the owner was told last */
    bool news;     /* he is to be told */
    bool urgent;   /* changed(): somebody came or went, look at once */
    bool first_known;
    int first_rank, first_worker, first_code;
    char first_text[512];
    /* Requests to wake: those parked before that number; in portions. */
    bool waking;
    uint64_t wake_before;
    void (*changed)(void *arg, struct job_coordinator *job);
    void *arg;
    struct list node;
};

/* changed: the roster may have changed; from within requests. */
int job_coordinator_create(struct job_coordinator **ret, const struct plane_job *job, int64_t term,
                           int gather_ms, void (*changed)(void *arg, struct job_coordinator *job),
                           void *arg, struct err *err);
void job_coordinator_destroy(struct job_coordinator *c);

/* What plane_job() says of a job that is there. */
int job_coordinator_update(struct job_coordinator *c, const struct plane_job *job, struct err *err);

struct job_coordinator_pod *job_coordinator_find_pod(const struct job_coordinator *c,
                                                     const char *uid);
int job_coordinator_pod(struct job_coordinator *c, const struct plane_pod *pod, struct err *err);
void job_coordinator_pod_gone(struct job_coordinator *c, const char *uid);

/* The agent of that pod was heard; the connection of an agent was closed. */
void job_coordinator_heard(struct job_coordinator_pod *pod);
void job_coordinator_closed(struct job_coordinator *c, const char *agent, uint64_t now);

/* What time brings. forgive: nobody was heard for a while because nobody has listened. True: look
 * again very soon. */
bool job_coordinator_tick(struct job_coordinator *c, bool forgive, uint64_t now);

/* job_coordinator_epochs.c: after whatever may have brought another epoch. */
void job_coordinator_count_epochs(struct job_coordinator *c);

/* Its agents are told to end their ranks. True when none is left to be told. */
bool job_coordinator_end(struct job_coordinator *c, uint64_t now);

/* Another number when something has changed that is worth telling. */
uint64_t job_coordinator_fingerprint(const struct job_coordinator *c);

/* job_coordinator_findings.c: calls back with each finding that stands, and the name of its pod. */
void job_coordinator_findings(const struct job_coordinator *c,
                              void (*each)(void *arg, const char *pod, const struct finding *f),
                              void *arg);

/* The time of day of a clock value; 0 for 0. */
int64_t job_coordinator_unix_ms(uint64_t at, uint64_t now);

void job_coordinator_facts(const struct job_coordinator *c, struct plane_facts *ret);
int job_coordinator_count_agents(const struct job_coordinator *c);

#endif
