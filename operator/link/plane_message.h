/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_message: the messages between hvd-operator and hvd-plane (link.h). Pure.
 *
 *   type       from      what
 *   config     operator  certificate, key, term, gatherMs, reviews: begin to serve agents
 *   renew      operator  certificate, key: use these for new connections
 *   job        operator  a job is new or has changed
 *   pod        operator  a pod of a job is new or has changed
 *   podGone    operator  job, pod: a pod was deleted
 *   forget     operator  job: it has finished or was deleted
 *   synced     operator  all jobs and pods have been sent
 *   reviewed   operator  the result of a token review
 *   look       operator  job: send its view
 *   listening  plane     port: agents are served
 *   facts      plane     what the agents of a job have reported, when it changes
 *   view       plane     a job in detail, as the answer to look
 *   recovered  plane     lost, seconds: training of some job stood still so long
 *   review     plane     id, token: review this token
 *   counts     plane     counters, for metrics
 *
 * plane_write_*() returns a new message, NULL: no memory. plane_read_*() parses one strictly:
 * -EINVAL with the reason in err; ret is unchanged then.
 */
#ifndef HVD_OPERATOR_LINK_PLANE_MESSAGE_H
#define HVD_OPERATOR_LINK_PLANE_MESSAGE_H

#include <jansson.h>

#include "core/base/err.h"
#include "operator/link/plane_types.h"
#include "operator/objects/job_findings.h"

#define PLANE_TOKEN_MAX 8192 /* bytes of a service account token */

struct plane_start {
    const char *cert_pem, *key_pem;
    int64_t term;
    int gather_ms;
    bool reviews; /* tokens can be reviewed; else only job keys are accepted */
};

/* Texts that are read point into the message. */
json_t *plane_write_config(const struct plane_start *config);
int plane_read_config(json_t *message, struct plane_start *ret, struct err *err);

json_t *plane_write_renew(const char *cert_pem, const char *key_pem);
int plane_read_renew(json_t *message, const char **ret_cert_pem, const char **ret_key_pem,
                     struct err *err);

json_t *plane_write_job(const struct plane_job *job);
int plane_read_job(json_t *message, struct plane_job *ret, struct err *err);

json_t *plane_write_pod(const char *job_uid, const struct plane_pod *pod);
int plane_read_pod(json_t *message, const char **ret_job_uid, struct plane_pod *ret,
                   struct err *err);

json_t *plane_write_reviewed(uint64_t id, const struct plane_review *review);
int plane_read_reviewed(json_t *message, uint64_t *ret_id, struct plane_review *ret,
                        struct err *err);

/* plane_message_facts.c. findings: the worst of nfindings. */
json_t *plane_write_facts(const char *job_uid, const struct plane_facts *facts,
                          const struct job_findings *findings);

/* ret_findings may be NULL; else the caller frees it with job_findings_fini(). */
int plane_read_facts(json_t *message, struct plane_facts *ret, struct job_findings *ret_findings,
                     struct err *err);

json_t *plane_write_counts(const struct plane_counts *counts);
int plane_read_counts(json_t *message, struct plane_counts *ret, struct err *err);

/* plane_message_view.c. The caller frees a view that was read with plane_view_fini(). */
json_t *plane_write_view(const struct plane_view *view);
int plane_read_view(json_t *message, struct plane_view *ret, struct err *err);
void plane_view_fini(struct plane_view *view);

/* Copies a text of a message. -EINVAL: it does not fit. */
int plane_copy_text(const char *what, const char *text, char *dst, size_t size, struct err *err);

#endif
