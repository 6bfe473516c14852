/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_private: what the files of the plane share and nobody else uses. See plane.h.
 */
#ifndef HVD_OPERATOR_COORDINATOR_PLANE_PRIVATE_H
#define HVD_OPERATOR_COORDINATOR_PLANE_PRIVATE_H

#include "core/base/loop.h"
#include "core/member/server.h"
#include "operator/coordinator/job_coordinator.h"

struct plane {
    struct plane_config config; /* names, keys and address are not kept here */
    struct keys keys;
    struct loop loop; /* its epoll descriptor is what the owner waits for */
    struct server *server;
    struct list jobs;
    uint64_t groups; /* given so far */
    struct loop_timer tick, news;
    uint64_t ticked; /* clock of the last tick */
    bool synced;
    uint64_t reviews;           /* ids given */
    struct plane_counts counts; /* of jobs that are gone; refusals */
};

/* plane_requests.c */

/* "/jobs/JOB/pods/POD/v1/..." -EINVAL: it is none. */
struct plane_path {
    char job[PLANE_UID_MAX], pod[PLANE_UID_MAX];
    const char *rest; /* "/v1/..." */
};

int plane_path(const char *path, struct plane_path *ret);

/* The server's hooks; arg is the plane. */
int plane_admit(void *arg, const struct server_request *request, const char *token,
                struct err *err);
int plane_handle(void *arg, const struct server_request *request, struct server_reply *ret_reply);
void plane_closed(void *arg, uint64_t group, const char *agent);

struct job_coordinator *plane_find(const struct plane *p, const char *job_uid);

#endif
