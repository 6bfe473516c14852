/* SPDX-License-Identifier: Apache-2.0
 *
 * plane: the coordinator plane: coordinates the agents of all jobs of a cluster. Agents in pods
 * dial it over TLS and speak the protocol of core/member/README.md. Each job has its own roster,
 * with the same code as in hvdrun.
 *
 * The owner (coordination.c) reports jobs and pods to it and reads the results. The plane uses the
 * API server only to review tokens, through the callback below. One thread. The owner polls a
 * descriptor with a time-out and calls plane_turn(), which does a bounded amount of work, so that
 * the owner's loop can renew the lease in time.
 */
#ifndef HVD_OPERATOR_COORDINATOR_PLANE_H
#define HVD_OPERATOR_COORDINATOR_PLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/member/findings.h"
#include "operator/coordinator/keys.h"

#define PLANE_PORT 7443

struct plane;

/* The result of a token review. */
struct plane_review {
    bool known;       /* authenticated, for the audience KEYS_AUDIENCE */
    bool failed;      /* the API server did not answer: ask again later */
    char pod_uid[64]; /* the pod that the token is bound to, "": none */
};

struct plane_config {
    const char *address;      /* numeric; NULL: all addresses of this machine, IPv4 and IPv6 */
    int port;                 /* 0 chooses one: plane_port() */
    const struct keys *keys;  /* copied */
    const char *const *names; /* for the certificate: DNS names and addresses that agents dial */
    int nnames;
    int64_t term; /* leaseTransitions: higher than the term of every earlier leader */
    /* How long the roster of a running job waits for agents to rejoin, without the time for each
     * agent (gather.h); 0: 20 s. */
    int gather_ms;

    /* plane_facts() of the job returns something new. Called from plane_turn(); may call anything
     * here but plane_destroy() and plane_turn(). */
    void (*changed)(void *arg, const char *job_uid);
    /* Called once for each epoch but the first, with the time that training stood still. May be
     * NULL. */
    void (*recovered)(void *arg, bool lost, double seconds);
    /* Asks the API server about a token (TokenReview, audience KEYS_AUDIENCE) and calls
     * plane_reviewed() with the same id, not from within this call. NULL: only job keys are
     * accepted. */
    void (*review)(void *arg, uint64_t id, const char *token);
    void *arg;
};

int plane_create(struct plane **ret, const struct plane_config *config, struct err *err);
void plane_destroy(struct plane *p); /* NULL is fine */

int plane_port(const struct plane *p);

/* The descriptor is readable when there is work. The time-out is -1 if no timer is set. */
int plane_fd(const struct plane *p);
int plane_timeout_ms(const struct plane *p);

/* Does pending work, for a few milliseconds at most: at most 16 TLS handshakes are pending at a
 * time. Call it when plane_fd() is readable or the time-out has passed; more calls do no harm. */
void plane_turn(struct plane *p);

void plane_reviewed(struct plane *p, uint64_t id, const struct plane_review *review);

/* The owner has reported all jobs and pods of the cluster. Before this call an agent of an unknown
 * job or pod gets 503 (retry), afterwards it is refused. */
void plane_synced(struct plane *p);

/* ---- jobs and pods -------------------------------------------------------------------------- */

struct plane_job {
    const char *uid, *namespace_, *name;
    int workers;  /* spec.workers */
    int min, max; /* workers; both equal to workers if the job is not elastic */
    int slots;    /* ranks per worker */
    bool elastic;
    int start_timeout; /* seconds that ready ranks wait for starting ones; 0: 60 */
    bool began; /* the job may have agents already: the roster is rebuilt from their reports */
};

/* Adds a job, or updates it. */
int plane_job(struct plane *p, const struct plane_job *job, struct err *err);

/* The job's key as text, which its pods use instead of a projected token. */
void plane_job_key(const struct plane *p, const char *job_uid, char dst[KEYS_JOB_MAX]);

struct plane_pod {
    const char *uid, *name;
    int worker, attempt; /* from the pod's labels */
    bool bound;          /* the pod has a node: its agent is expected */
    bool deleting;       /* the pod's ranks leave at the next step boundary */
    bool finished;       /* the pod has succeeded or failed */
};

/* Adds a pod, or updates it. -ENOENT: the job was not added. */
int plane_pod(struct plane *p, const char *job_uid, const struct plane_pod *pod, struct err *err);

/* The pod's object was deleted. An unknown pod is ignored. */
void plane_pod_gone(struct plane *p, const char *job_uid, const char *pod_uid);

bool plane_knows(const struct plane *p, const char *job_uid);

/* The job has finished or was deleted: its agents end their ranks and its key becomes invalid. An
 * unknown job is ignored. */
void plane_forget(struct plane *p, const char *job_uid);

/* ---- results -------------------------------------------------------------------------------- */

struct plane_facts {
    bool there;            /* an agent has joined; else the other fields are not set */
    bool rebuilding;       /* the roster is being rebuilt from agents' reports */
    const char *state;     /* roster_state() */
    uint32_t epoch;        /* number of the current epoch, 0: none yet */
    int size;              /* ranks in it */
    int target;            /* desired number of ranks */
    int agents;            /* number of agents that have joined and are not lost */
    int ready_workers;     /* workers whose ranks all train */
    int restarts;          /* ranks that were replaced */
    char waiting_for[512]; /* roster_waiting_for(): contains no times, so it is stable */
    struct {
        char cause[512];
        int64_t unix_ms; /* 0: none yet */
        double ms;       /* from the loss or announcement to the new epoch */
    } last_change;
    double repair_ms; /* repair time after the last loss, on the slowest rank */
    struct {
        bool known;
        int rank, worker; /* rank -1: it was in no epoch */
        int code;         /* exit code, or -signal */
        char text[512];
    } first_failure;
    bool any_finished; /* the program has finished on at least one rank */
    bool all_finished; /* all ranks have finished and no further one will start */
    int exit_code;     /* exit code of the job, once all_finished */
    double batches_per_s, bytes_per_s;
    int nfindings; /* current findings of the doctor */
    int nfailures; /* how many of them are failures */
};

/* -ENOENT: no such job. */
int plane_facts(const struct plane *p, const char *job_uid, struct plane_facts *ret);

/* The JSON of GET /v1/status (core/member/README.md). The caller frees it. NULL: no such job, or no
 * memory. */
char *plane_status(const struct plane *p, const char *job_uid);

/* Calls back with each current finding of the doctor and the name of its pod. */
void plane_findings(const struct plane *p, const char *job_uid,
                    void (*each)(void *arg, const char *pod, const struct finding *f), void *arg);

/* A pod whose agent has joined, with its ranks. */
struct plane_worker {
    const char *pod_uid;
    bool connected;
    const char *state; /* rank_state_name() of the rank with the least progress */
    char ranks[64];    /* in the current epoch: "8-15", "": none */
    uint64_t batches;  /* least number of batches of one of its ranks */
    int64_t idle_ms;   /* longest time since the last new batch of a rank; -1: no batch yet */
};

/* plane_view.c: calls back with each worker, which is valid during the call. */
void plane_workers(const struct plane *p, const char *job_uid,
                   void (*each)(void *arg, const struct plane_worker *worker), void *arg);

struct plane_epoch {
    uint32_t number;
    int64_t unix_ms;
    int size;    /* ranks */
    bool first;  /* the first that this operator saw */
    bool lost;   /* caused by a loss; else by a planned change */
    double ms;   /* from the loss or the announcement to this epoch */
    double cost; /* ms that training stood still */
    const char *cause;
};

/* Calls back with each of the last 32 epochs, newest first. */
void plane_epochs(const struct plane *p, const char *job_uid,
                  void (*each)(void *arg, const struct plane_epoch *epoch), void *arg);

/* Since plane_create(), for metrics. */
struct plane_counts {
    int jobs, agents; /* now */
    uint64_t joins, rejoins;
    uint64_t refused_token;               /* token wrong, missing, or of another or finished job */
    uint64_t refused_pod;                 /* no such job, or no such pod in the job */
    uint64_t refused_body;                /* body too long or malformed */
    uint64_t reviews;                     /* token reviews sent to the API server */
    uint64_t losses;                      /* agents declared lost */
    uint64_t epochs_planned, epochs_lost; /* epochs after a planned change; after a loss */
};

void plane_counts(const struct plane *p, struct plane_counts *ret);

#endif
