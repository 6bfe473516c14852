/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_service_private: shared by plane_service.c and plane_report.c.
 */
#ifndef HVD_OPERATOR_COORDINATOR_PLANE_SERVICE_PRIVATE_H
#define HVD_OPERATOR_COORDINATOR_PLANE_SERVICE_PRIVATE_H

#include <jansson.h>

#include "operator/coordinator/plane.h"
#include "operator/coordinator/plane_service.h"
#include "operator/link/link.h"

struct plane_service {
    struct plane_service_config config;
    char address[64]; /* "": all addresses */
    int port;
    struct link *link;   /* NULL: not connected */
    json_t *start;       /* the operator's config; NULL: not told to serve */
    struct plane *plane; /* NULL: does not serve */
    struct loop_fd lfd;
    struct loop_timer timer, counting, listening, again;
    struct plane_counts counts; /* that the operator has */
    unsigned failures;          /* to connect, in a row */
    int said;                   /* the last failure that was logged */
};

/* plane_report.c: callbacks of the plane; arg is the service. */
void plane_report_changed(void *arg, const char *job_uid);
void plane_report_recovered(void *arg, bool lost, double seconds);
void plane_report_review(void *arg, uint64_t id, const char *token);

/* Sends the counters if they have changed; sends a view, unless the job is unknown. */
void plane_report_counts(struct plane_service *s);
void plane_report_view(struct plane_service *s, const char *job_uid);

#endif
