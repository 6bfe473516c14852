/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_private: shared by the files of the plane (plane.h).
 */
#ifndef HVD_OPERATOR_COORDINATOR_PLANE_PRIVATE_H
#define HVD_OPERATOR_COORDINATOR_PLANE_PRIVATE_H

#include "core/base/loop.h"
#include "core/member/server.h"
#include "operator/coordinator/job_coordinator.h"

struct plane {
    struct plane_config config; /* its texts are NULL */
    struct loop loop;           /* the owner waits for the loop's epoll descriptor */
    struct server *server;
    struct list jobs;
    struct gather gather;
    uint64_t groups; /* the last job_coordinator.group given to a job */
    struct loop_timer tick, news;
    uint64_t ticked; /* clock_ns() of the last tick */
    bool synced;
    uint64_t reviews;           /* the last id given to a review */
    struct plane_counts counts; /* refusals and reviews of all jobs; the rest of freed jobs only */
};

/* plane_requests.c */

/* Splits "/jobs/JOB/pods/POD/v1/...". -EINVAL: another path. */
struct plane_path {
    char job[PLANE_UID_MAX], pod[PLANE_UID_MAX];
    const char *rest; /* "/v1/..." */
};

int plane_path(const char *path, struct plane_path *ret);

/* Callbacks of the HTTP server; arg is the plane. */
int plane_admit(void *arg, const struct server_request *request, const char *token,
                struct server_client *ret_client, struct err *err);
int plane_handle(void *arg, const struct server_request *request, struct server_reply *ret_reply);
void plane_closed(void *arg, uint64_t group, const char *agent);

struct job_coordinator *plane_find(const struct plane *p, const char *job_uid);

#endif
