/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_mirror: what hvd-plane has reported, in the operator: facts of jobs, counters, recent
 * views. Lives as long as the connection to the plane. Pure: coordination.c feeds it and sends what
 * it asks for. One thread.
 *
 * The plane is not trusted. A message that does not parse is an error. A message about a job that
 * plane_mirror_job() has not announced is ignored. Memory is bounded: one facts message a job, and
 * PLANE_VIEWS views.
 */
#ifndef HVD_OPERATOR_LINK_PLANE_MIRROR_H
#define HVD_OPERATOR_LINK_PLANE_MIRROR_H

#include <jansson.h>

#include "core/base/err.h"
#include "operator/link/plane_types.h"
#include "operator/objects/job_findings.h"

#define PLANE_VIEWS 8

struct plane_mirror;

struct plane_mirror_config {
    void (*listening)(void *arg, int port);
    void (*changed)(void *arg, const char *job_uid); /* facts of the job have changed */
    void (*recovered)(void *arg, bool lost, double seconds);
    void (*review)(void *arg, uint64_t id, const char *token);
    void (*look)(void *arg, const char *job_uid); /* ask the plane for a view of this job */
    void *arg;
};

int plane_mirror_create(struct plane_mirror **ret, const struct plane_mirror_config *config,
                        struct err *err);
void plane_mirror_destroy(struct plane_mirror *m); /* NULL is fine */

/* Announces a job. -ENOMEM. */
int plane_mirror_job(struct plane_mirror *m, const char *uid);
void plane_mirror_forget(struct plane_mirror *m, const char *uid);
bool plane_mirror_knows(const struct plane_mirror *m, const char *uid);

/* Handles a message from the plane. -EPROTO or -EINVAL: the plane does not keep to the protocol. */
int plane_mirror_take(struct plane_mirror *m, const char *type, json_t *message, struct err *err);

/* False: no facts of this job yet, or no agent has joined. ret_findings may be NULL; else the
 * caller frees it with job_findings_fini(). */
bool plane_mirror_facts(const struct plane_mirror *m, const char *uid, struct plane_facts *ret,
                        struct job_findings *ret_findings);

/* The job's view, at most some seconds old, valid until the next call of plane_mirror_take() or
 * plane_mirror_view(); NULL: none yet. Calls look() at most once a second for a job, so that a
 * newer view arrives soon. */
const struct plane_view *plane_mirror_view(struct plane_mirror *m, const char *uid);

const struct plane_counts *plane_mirror_counts(const struct plane_mirror *m);

#endif
