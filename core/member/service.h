/* SPDX-License-Identifier: Apache-2.0
 *
 * service: applies the requests of the membership protocol (README.md) to a roster. Called by a
 * server on the coordinator's thread.
 */
#ifndef HVD_MEMBER_SERVICE_H
#define HVD_MEMBER_SERVICE_H

#include "core/member/roster.h"
#include "core/member/server.h"

struct service {
    struct roster *roster;
    /* The roster may have changed: the owner must check the job and wake parked requests, but
     * later, from its loop, because this call comes from inside a server. */
    void (*changed)(void *arg);
    void *arg;
    /* Takes what ranks of an agent have printed (POST /v1/output). -EAGAIN: not now, the agent
     * sends it again. NULL: output is not accepted. */
    int (*output)(void *arg, int agent, const struct printed_body *body);
    /* Whether another coordinator has launched this agent (struct welcome_body, post_output). NULL:
     * none has. */
    bool (*adopted)(void *arg, int agent);
    /* Decides whether an agent may join or rejoin, before the roster is asked. NULL: the roster
     * alone decides. */
    int (*arrive)(void *arg, const struct join_body *body, struct err *err);
    /* A planned change was decided: stores it, before the response is sent, for a coordinator that
     * takes over. NULL: no coordinator can take over. */
    void (*keep)(void *arg);
};

/* A server_handle_f; arg is the struct service. */
int service_handle(void *arg, const struct server_request *request, struct server_reply *ret_reply);

#endif
