/* SPDX-License-Identifier: Apache-2.0
 *
 * crew: one job in the plane: its pods, their agents, its roster. Owned by the plane, on its
 * thread. crew.c has who comes and who is lost, crew_facts.c and crew_findings.c what became of it.
 */
#ifndef HVD_OPERATOR_COORDINATOR_CREW_H
#define HVD_OPERATOR_COORDINATOR_CREW_H

#include "core/base/list.h"
#include "core/member/roster.h"
#include "core/member/service.h"
#include "operator/coordinator/crew_history.h"
#include "operator/coordinator/plane.h"

#define CREW_UID_MAX   64 /* of a job or pod, with NUL; names of pods too */
#define CREW_HASH_SIZE 32

/* Tokens of a pod that the API server was asked about. */
struct crew_token {
    uint8_t good[CREW_HASH_SIZE], bad[CREW_HASH_SIZE], asked[CREW_HASH_SIZE];
    uint64_t good_at, bad_at, asked_at; /* clocks; 0: none */
    uint64_t id;                        /* of the review under way, 0: none */
};

struct crew_pod {
    char uid[CREW_UID_MAX], name[CREW_UID_MAX];
    int worker, attempt;
    bool bound, deleting, over;
    int agent;          /* of the roster, the last that has come from it; -1: none */
    uint64_t closed_at; /* clock: its agent's connection was closed, and it has not come back; 0 */
    struct crew_token token;
};

struct crew {
    char uid[CREW_UID_MAX];
    uint64_t group; /* of its parked requests */
    int workers, min, max, slots, start_timeout;
    int64_t term;
    int gather_ms;
    bool ended; /* it is forgotten as soon as its agents have heard of it */
    uint64_t ended_at;
    struct roster roster;
    struct service service;
    struct crew_pod **pods; /* [npods] */
    int npods, pods_cap;
    uint64_t joins, rejoins, losses;
    struct crew_history history;
    int seen_notes; /* that parked requests were woken for; as the next one */
    uint32_t seen_world;
    uint64_t sign; /* crew_sign() when the owner was told last */
    bool news;     /* he is to be told */
    bool hurry;    /* changed(): somebody came or went, look at once */
    bool first_known;
    int first_rank, first_worker, first_code;
    char first_text[512];
    /* Requests to wake: those parked before that number; in portions. */
    bool waking;
    uint64_t wake_before;
    void (*changed)(void *arg, struct crew *crew);
    void *arg;
    struct list node;
};

/* changed: the roster may have changed; from within requests. */
int crew_create(struct crew **ret, const struct plane_job *job, int64_t term, int gather_ms,
                void (*changed)(void *arg, struct crew *crew), void *arg, struct err *err);
void crew_destroy(struct crew *c);

/* What plane_job() says of a job that is there. */
int crew_update(struct crew *c, const struct plane_job *job, struct err *err);

struct crew_pod *crew_find_pod(const struct crew *c, const char *uid);
int crew_pod(struct crew *c, const struct plane_pod *pod, struct err *err);
void crew_pod_gone(struct crew *c, const char *uid);

/* The agent of that pod was heard; the connection of an agent was closed. */
void crew_heard(struct crew_pod *pod);
void crew_closed(struct crew *c, const char *agent, uint64_t now);

/* What time brings. forgive: nobody was heard for a while because nobody has listened. True: look
 * again very soon. */
bool crew_tick(struct crew *c, bool forgive, uint64_t now);

/* crew_epochs.c: after whatever may have brought another epoch. */
void crew_count_epochs(struct crew *c);

/* Its agents are told to end their ranks. True when none is left to be told. */
bool crew_end(struct crew *c, uint64_t now);

/* Another number when something has changed that is worth telling. */
uint64_t crew_sign(const struct crew *c);

/* crew_findings.c: calls back with each finding that stands, and the name of its pod. */
void crew_findings(const struct crew *c,
                   void (*each)(void *arg, const char *pod, const struct finding *f), void *arg);

void crew_facts(const struct crew *c, struct plane_facts *ret);
int crew_count_agents(const struct crew *c);

#endif
