/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_types: what hvd-operator and hvd-plane tell each other: jobs and pods in one direction,
 * what agents have reported in the other. Used by the plane (operator/coordinator/plane.h), by the
 * messages between both (plane_message.h) and by the operator's copy (plane_mirror.h).
 */
#ifndef HVD_OPERATOR_LINK_PLANE_TYPES_H
#define HVD_OPERATOR_LINK_PLANE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/member/findings.h"

#define PLANE_PORT      7443
#define PLANE_UID_MAX   64 /* bytes of a uid or a pod's name, with NUL */
#define PLANE_HASH_SIZE 32

#define PLANE_AUDIENCE   "hvd-operator" /* of projected service account tokens */
#define PLANE_KEY_PREFIX "hvd1." /* of a job's key; no service account token begins like this */

/* ---- from the operator ----------------------------------------------------------------------- */

/* The result of a token review. */
struct plane_review {
    bool known;                  /* authenticated, for the audience PLANE_AUDIENCE */
    bool failed;                 /* the API server did not answer: ask again later */
    char pod_uid[PLANE_UID_MAX]; /* the pod that the token is bound to, "": none */
};

struct plane_job {
    const char *uid, *namespace_, *name;
    uint8_t key_hash[PLANE_HASH_SIZE]; /* SHA-256 of the job's key as text */
    int workers;                       /* spec.workers */
    int min, max;                      /* workers; as in struct hvdjob */
    int slots;                         /* ranks per worker */
    bool keep_places;                  /* spec.keepPlaces */
    int start_timeout;                 /* seconds that ready ranks wait for starting ones; 0: 60 */
    bool began; /* the job may have agents already: the roster is rebuilt from their reports */
};

struct plane_pod {
    const char *uid, *name;
    int worker, attempt; /* from the pod's labels */
    bool bound;          /* the pod has a node: its agent is expected */
    bool deleting;       /* the pod's ranks leave at the next step boundary */
    bool finished;       /* the pod has succeeded or failed */
};

/* ---- from the plane -------------------------------------------------------------------------- */

struct plane_facts {
    bool there;            /* an agent has joined; else the other fields are not set */
    bool rebuilding;       /* the roster is being rebuilt from agents' reports */
    char state[16];        /* roster_state() */
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

/* A pod whose agent has joined, with its ranks. */
struct plane_worker {
    char pod_uid[PLANE_UID_MAX];
    bool connected;
    char state[16]; /* rank_state_name() of the rank with the least progress */
    /* in the current epoch: "8-15"; where places differ "8-9 (places 8, 10)"; "": none */
    char ranks[128];
    uint64_t batches; /* least number of batches of one of its ranks */
    int64_t idle_ms;  /* longest time since the last new batch of a rank; -1: no batch yet */
    uint64_t sets;    /* largest number of sets that one of its ranks is in */
    /* of the rank in sets that is nearest to its limit; 0: not known, or no rank is in sets */
    uint64_t descriptors, descriptors_max;
    uint64_t segments; /* bytes of memory in the shared segments of its ranks that are in sets */
    uint64_t memory_left, memory_limit; /* bytes, of its container; limit 0: not known */
    /* of the rank in sets whose GPU has the least memory left: communicators of NCCL's, and bytes;
       gpu_memory 0: not known */
    uint64_t communicators, gpu_memory_left, gpu_memory;
    uint64_t broken;                      /* largest number of broken sets of one of its ranks */
    int64_t broken_since;                 /* of the first of them: unix ms */
    char broken_set[CTL_BROKEN_TEXT_MAX]; /* and its text, "" if there is none */
};

struct plane_epoch {
    uint32_t number;
    int64_t unix_ms;
    int size;    /* ranks */
    bool first;  /* the first that this plane saw */
    bool lost;   /* caused by a loss; else by a planned change */
    double ms;   /* from the loss or the announcement to this epoch */
    double cost; /* ms that training stood still */
    char cause[512];
};

struct plane_finding {
    char pod[PLANE_UID_MAX];
    struct finding finding;
};

/* One job in detail, for the page. At most these numbers of entries. */
#define PLANE_WORKERS_MAX  2000
#define PLANE_EPOCHS_MAX   32
#define PLANE_FINDINGS_MAX 200

struct plane_view {
    char uid[PLANE_UID_MAX];
    struct plane_facts facts;
    int nworkers, nepochs, nfindings;
    struct plane_worker *workers;   /* owned, as are the other lists */
    struct plane_epoch *epochs;     /* newest first */
    struct plane_finding *findings; /* failures first */
};

/* Since plane_create(), for metrics. */
struct plane_counts {
    int jobs, agents; /* now */
    uint64_t joins, rejoins;
    uint64_t refused_token;               /* token wrong, missing, or of another or finished job */
    uint64_t refused_pod;                 /* no such job, or no such pod in the job */
    uint64_t refused_body;                /* body too long, too slow or malformed */
    uint64_t reviews;                     /* token reviews sent to the API server */
    uint64_t losses;                      /* agents declared lost */
    uint64_t epochs_planned, epochs_lost; /* epochs after a planned change; after a loss */
};

#endif
