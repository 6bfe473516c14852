/* SPDX-License-Identifier: Apache-2.0
 *
 * plane: the coordinator plane: coordinates the agents of all jobs of a cluster. Agents in pods
 * dial it over TLS and speak the protocol of core/member/README.md. Each job has its own roster,
 * with the same code as in hvdrun.
 *
 * The owner (plane_service.c) passes on jobs and pods from the operator and reads the results.
 * Tokens are reviewed by the operator, through the callback below. One thread. The owner polls a
 * descriptor with a time-out and calls plane_turn(), which does a bounded amount of work.
 */
#ifndef HVD_OPERATOR_COORDINATOR_PLANE_H
#define HVD_OPERATOR_COORDINATOR_PLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "operator/link/plane_types.h"

struct plane;

struct plane_config {
    const char *address; /* numeric; NULL: all addresses of this machine, IPv4 and IPv6 */
    int port;            /* 0 chooses one: plane_port() */
    const char *cert_pem, *key_pem; /* the server's certificate chain and its key */
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
    /* Asks the API server about a token (TokenReview, audience PLANE_AUDIENCE) and calls
     * plane_reviewed() with the same id, not from within this call. NULL: only job keys are
     * accepted. */
    void (*review)(void *arg, uint64_t id, const char *token);
    void *arg;
};

int plane_create(struct plane **ret, const struct plane_config *config, struct err *err);
void plane_destroy(struct plane *p); /* NULL is fine */

/* Uses another certificate for new connections. Open ones stay. -EINVAL. */
int plane_use_certificate(struct plane *p, const char *cert_pem, const char *key_pem,
                          struct err *err);

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

/* Adds a job, or updates it. */
int plane_job(struct plane *p, const struct plane_job *job, struct err *err);

/* Adds a pod, or updates it. -ENOENT: the job was not added. */
int plane_pod(struct plane *p, const char *job_uid, const struct plane_pod *pod, struct err *err);

/* The pod's object was deleted. An unknown pod is ignored. */
void plane_pod_gone(struct plane *p, const char *job_uid, const char *pod_uid);

/* The job has finished or was deleted: its agents end their ranks and its key becomes invalid. An
 * unknown job is ignored. */
void plane_forget(struct plane *p, const char *job_uid);

/* ---- results -------------------------------------------------------------------------------- */

/* -ENOENT: no such job. */
int plane_facts(const struct plane *p, const char *job_uid, struct plane_facts *ret);

/* The JSON of GET /v1/status (core/member/README.md). The caller frees it. NULL: no such job, or no
 * memory. */
char *plane_status(const struct plane *p, const char *job_uid);

/* Calls back with each current finding of the doctor and the name of its pod. */
void plane_findings(const struct plane *p, const char *job_uid,
                    void (*each)(void *arg, const char *pod, const struct finding *f), void *arg);

/* plane_view.c: calls back with each worker, which is valid during the call. */
void plane_workers(const struct plane *p, const char *job_uid,
                   void (*each)(void *arg, const struct plane_worker *worker), void *arg);

/* Calls back with each of the last 32 epochs, newest first. */
void plane_epochs(const struct plane *p, const char *job_uid,
                  void (*each)(void *arg, const struct plane_epoch *epoch), void *arg);

void plane_counts(const struct plane *p, struct plane_counts *ret);

#endif
