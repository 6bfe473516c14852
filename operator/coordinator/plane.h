/* SPDX-License-Identifier: Apache-2.0
 *
 * plane: the coordinator of all jobs of a cluster: agents in pods dial it over TLS and speak the
 * protocol of core/member/README.md; each job has a roster of its own, the one that hvdrun uses.
 *
 * The owner (the operator's driver) tells it which jobs and pods there are and asks what became of
 * them; it never calls the API server but to review tokens, through the hook below. One thread. It
 * has a descriptor to wait for and a time-out; plane_turn() does a bounded piece of work, so that
 * the lease comes first in every turn of the owner's loop.
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

/* What a token review found out. */
struct plane_review {
    bool known;       /* the API server vouches for it, for our audience */
    bool failed;      /* it could not be asked: ask again later */
    char pod_uid[64]; /* the pod that the token is bound to, "": none */
};

struct plane_config {
    const char *address;      /* numeric; NULL: every one of this machine, IPv4 and IPv6 */
    int port;                 /* 0 chooses one: plane_port() */
    const struct keys *keys;  /* copied; from the Secret in the operator's namespace */
    const char *const *names; /* DNS names and numeric addresses that agents dial it by */
    int nnames;
    int64_t term;  /* leaseTransitions: higher than that of every operator before this one */
    int gather_ms; /* how long a job that runs already waits for its agents; 0: 20 s */

    /* Something about the job changed that plane_facts() tells. From plane_turn(); it may call
     * anything here but plane_destroy() and plane_turn(). */
    void (*changed)(void *arg, const char *job_uid);
    /* Once for each epoch that followed another one: what it took the job. May be NULL. */
    void (*recovered)(void *arg, bool lost, double seconds);
    /* Asks the API server about a token (TokenReview, audience KEYS_AUDIENCE) and calls
     * plane_reviewed() with the same id, not from within this call. NULL: only job keys are
     * taken. */
    void (*review)(void *arg, uint64_t id, const char *token);
    void *arg;
};

int plane_create(struct plane **ret, const struct plane_config *config, struct err *err);
void plane_destroy(struct plane *p); /* NULL is fine */

int plane_port(const struct plane *p);

/* Readable when there is something to do; -1 as time-out: nothing is due. */
int plane_fd(const struct plane *p);
int plane_timeout_ms(const struct plane *p);

/* Does what can be done now, a few milliseconds of it: sixteen TLS handshakes are under way at
 * most. Call it when plane_fd() is readable or the time is over; more often does not matter. */
void plane_turn(struct plane *p);

void plane_reviewed(struct plane *p, uint64_t id, const struct plane_review *review);

/* All jobs and pods of the cluster have been told at least once. Before that an agent of a job or
 * pod that is not known is asked to come again, after it it is refused. */
void plane_synced(struct plane *p);

/* ---- jobs and pods -------------------------------------------------------------------------- */

struct plane_job {
    const char *uid, *namespace_, *name;
    int workers;  /* that there should be: spec.workers */
    int min, max; /* workers; of a job that is not elastic both are workers */
    int slots;    /* ranks a worker */
    bool elastic;
    int start_timeout; /* seconds that those who are ready wait for those who start; 0: 60 */
    bool began;        /* by its status it has run before: agents may know more than we do */
};

/* Adds a job, or tells what has changed about it. */
int plane_job(struct plane *p, const struct plane_job *job, struct err *err);

/* The key file of its pods (their Secret), if they have no projected token: text, with NUL. */
void plane_job_key(const struct plane *p, const char *job_uid, char dst[KEYS_JOB_MAX]);

struct plane_pod {
    const char *uid, *name;
    int worker, attempt; /* of its labels */
    bool bound;          /* it has a node: its agent will come */
    bool deleting;       /* it is asked to go: its ranks leave at a boundary */
    bool over;           /* it has ended, or is gone */
};

/* Of a job that was told; -ENOENT. */
int plane_pod(struct plane *p, const char *job_uid, const struct plane_pod *pod, struct err *err);

/* The pod's object is gone. Unknown is fine. */
void plane_pod_gone(struct plane *p, const char *job_uid, const char *pod_uid);

/* The job has ended or is gone: its agents end their ranks, its keys are good for nothing. Unknown
 * is fine. */
void plane_forget(struct plane *p, const char *job_uid);

/* ---- what became of them -------------------------------------------------------------------- */

struct plane_facts {
    bool there;            /* an agent has joined; else nothing below says anything */
    bool rebuilding;       /* agents are asked what they know */
    const char *state;     /* roster_state() */
    uint32_t epoch;        /* its number, 0: none yet */
    int size;              /* ranks of it */
    int target;            /* ranks there should be */
    int agents;            /* connected */
    int ready_workers;     /* of which all ranks train */
    int restarts;          /* ranks that were replaced */
    char waiting_for[512]; /* the roster's words, which change only with what they tell of */
    struct {
        char cause[512];
        int64_t unix_ms; /* 0: none yet */
        double ms;       /* from the loss or announcement to the new epoch */
    } last_change;
    double repair_ms; /* of the last loss, on the slowest rank */
    struct {
        bool known;
        int rank, worker; /* -1: it was in no world */
        int code;         /* exit code, or -signal */
        char text[512];
    } first_failure;
    bool finished; /* its program has come to its end on some rank */
    bool over;     /* every rank has ended and none is to come */
    int exit_code; /* when over */
    double batches_per_s, bytes_per_s;
    int nfindings; /* of the doctor, that stand */
    int nfailures; /* of which failures */
};

/* -ENOENT: no such job. */
int plane_facts(const struct plane *p, const char *job_uid, struct plane_facts *ret);

/* For people and the web page: GET /v1/status of core/member/README.md; to free(). NULL: no such
 * job, or no memory. */
char *plane_status(const struct plane *p, const char *job_uid);

/* Calls back with each finding that stands, and the name of the pod that has it. */
void plane_findings(const struct plane *p, const char *job_uid,
                    void (*each)(void *arg, const char *pod, const struct finding *f), void *arg);

/* A pod whose agent has joined, and its ranks. */
struct plane_worker {
    const char *pod_uid;
    bool connected;
    const char *state; /* of the rank that is least far: rank_state_name() */
    char ranks[64];    /* in the current world: "8-15", "": none */
    uint64_t batches;  /* the fewest of a rank of it */
    int64_t idle_ms;   /* since when the one that is longest without a new one has none; -1 */
};

/* plane_sight.c: calls back with each; what is given is valid until that returns. */
void plane_workers(const struct plane *p, const char *job_uid,
                   void (*each)(void *arg, const struct plane_worker *worker), void *arg);

struct plane_epoch {
    uint32_t number;
    int64_t unix_ms;
    int size;    /* ranks */
    bool first;  /* of this operator: there was none before it */
    bool lost;   /* it is the answer to a loss, not a planned change */
    double ms;   /* from the loss or announcement to it */
    double cost; /* ms that it took the job: until work went on */
    const char *cause;
};

/* The last ones, the newest first. */
void plane_epochs(const struct plane *p, const char *job_uid,
                  void (*each)(void *arg, const struct plane_epoch *epoch), void *arg);

/* Since plane_create(), for metrics. */
struct plane_counts {
    int jobs, agents; /* now */
    uint64_t joins, rejoins;
    uint64_t refused_token; /* wrong, missing, of another job or of one that is over */
    uint64_t refused_pod;   /* no such pod in that job */
    uint64_t refused_body;  /* too long or malformed */
    uint64_t reviews;       /* tokens that the API server was asked about */
    uint64_t losses;        /* agents given up */
    uint64_t epochs_planned, epochs_lost; /* by cause: a planned change, a loss */
};

void plane_counts(const struct plane *p, struct plane_counts *ret);

#endif
