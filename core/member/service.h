/* SPDX-License-Identifier: Apache-2.0
 *
 * service: the requests of the membership protocol (README.md) on a roster. Called by a server on
 * the coordinator's thread.
 */
#ifndef HVD_MEMBER_SERVICE_H
#define HVD_MEMBER_SERVICE_H

#include "core/member/roster.h"
#include "core/member/server.h"

struct service {
    struct roster *roster;
    /* The roster may have changed: look at the job and wake parked requests, but later, from the
     * loop: this call comes from inside a server. */
    void (*changed)(void *arg);
    void *arg;
    /* What ranks of an agent have printed (POST /v1/output); -EAGAIN: not now, it will come again.
     * NULL: it is not taken. */
    int (*output)(void *arg, int agent, const struct printed_body *body);
    /* Whether another coordinator launched this agent (struct welcome_body, post_output). NULL:
     * none did. */
    bool (*adopted)(void *arg, int agent);
    /* An agent comes, also once more: whether it may, before the roster is asked. NULL: the roster
     * alone decides. */
    int (*arrive)(void *arg, const struct join_body *body, struct err *err);
    /* A planned change was decided: before its answer goes out it is written down for whoever takes
     * the job over. NULL: nobody could. */
    void (*keep)(void *arg);
};

/* A server_handle_f; arg is the struct service. */
int service_handle(void *arg, const struct server_request *request, struct server_reply *ret_reply);

#endif
