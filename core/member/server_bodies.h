/* SPDX-License-Identifier: Apache-2.0
 *
 * server_bodies: limits on the bodies of requests while they are received: memory of all bodies
 * together, a share of it for each pod and namespace, and a deadline for each request, so that a
 * client that sends slowly holds no memory for long. Part of server.c, on its loop.
 */
#ifndef HVD_MEMBER_SERVER_BODIES_H
#define HVD_MEMBER_SERVER_BODIES_H

#include "core/base/buf.h"
#include "core/base/list.h"
#include "core/base/loop.h"
#include "core/member/server.h"
#include "core/member/shares.h"

#define SERVER_BODY_MS 10000 /* from a request's headers to the end of its body */

struct server_bodies {
    struct loop *loop;
    size_t max;         /* bytes of one body */
    bool limited;       /* clients have shares and deadlines */
    struct list coming; /* bodies that are being received, oldest first */
    struct loop_timer timer;
    struct shares pods, namespaces;
    uint64_t too_long; /* requests that were refused for that */
    uint64_t late;     /* requests whose deadline has passed */
};

/* The body of one request. */
struct server_body {
    struct buf data;
    bool too_long, too_many;
    struct server_client client;
    int fd; /* of its connection */
    uint64_t by;
    struct list node;
};

/* total: bytes of all bodies together, with shares for clients; 0: no limit. */
void server_bodies_init(struct server_bodies *all, struct loop *loop, size_t max, size_t total);
void server_bodies_fini(struct server_bodies *all);

/* The request's headers have come. client NULL: no shares and no deadline. After the deadline the
 * connection of fd is shut down. */
void server_body_begin(struct server_bodies *all, struct server_body *body,
                       const struct server_client *client, int fd);

/* Receives bytes. Bytes of a refused body are dropped. */
void server_body_take(struct server_bodies *all, struct server_body *body, const char *data,
                      size_t n);

/* The body is complete: no deadline any more. */
void server_body_end(struct server_bodies *all, struct server_body *body);

void server_body_fini(struct server_bodies *all, struct server_body *body);

#endif
