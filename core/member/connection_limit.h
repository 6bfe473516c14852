/* SPDX-License-Identifier: Apache-2.0
 *
 * connection_limit: accepts connections for an HTTP server whose clients do not trust each other.
 * Part of server.c, on its loop.
 *
 * Before a connection has sent a request that was admitted, it counts for its source address:
 *   - accepted connections wait in a queue for each address. Addresses take turns.
 *   - `handshakes` TLS handshakes are pending at a time (each takes half a millisecond of CPU), and
 *     one address has at most a share of them. A handshake is pending until the connection's first
 *     request, and no longer than a second, so that clients that stall do not block others.
 *   - its first request must have been admitted within 10 s; else the connection is closed.
 * After that it counts for its client: 32 connections a pod, and a share of all for a namespace.
 */
#ifndef HVD_MEMBER_CONNECTION_LIMIT_H
#define HVD_MEMBER_CONNECTION_LIMIT_H

#include <microhttpd.h>

#include "core/base/err.h"
#include "core/base/list.h"
#include "core/base/loop.h"
#include "core/member/server.h"
#include "core/member/shares.h"

#define CONNECTION_LIMIT_POD 32

struct connection_limit {
    struct loop *loop; /* NULL: not open */
    struct MHD_Daemon *daemon;
    int fd;
    struct loop_fd lfd;
    struct loop_timer pump;     /* starts handshakes of waiting connections */
    struct loop_timer unproven; /* ends the first connection of `strangers` */
    struct list sources;        /* with waiting connections; the next one first */
    struct list pending;        /* handshakes, oldest first */
    struct list strangers;      /* connections without an admitted request, oldest first */
    struct shares waiting, handshakes, unproven_by, pods, namespaces;
    void (*accepted)(void *arg);
    void *arg;
};

/* fd: a listening socket, owned by p from now on, even on failure. daemon: has no listening socket
 * of its own, and was started with connection_limit_notify() as MHD_OPTION_NOTIFY_CONNECTION.
 * connections: the most that the daemon takes. accepted() is called after connections were given
 * to the daemon. */
int connection_limit_open(struct connection_limit *p, struct loop *loop, int fd, int handshakes,
                          unsigned connections, struct MHD_Daemon *daemon,
                          void (*accepted)(void *arg), void *arg);

/* Stops accepting. Call it before the daemon is stopped. Does nothing if p is not open. */
void connection_limit_close(struct connection_limit *p);

/* Call it after the daemon has been stopped. */
void connection_limit_fini(struct connection_limit *p);

void connection_limit_notify(void *arg, struct MHD_Connection *conn, void **context,
                             enum MHD_ConnectionNotificationCode what);

/* True while a client waits for the handshakes of others: connections wait to be accepted, or those
 * of an address that has no handshake pending itself. */
bool connection_limit_behind(const struct connection_limit *p);

/* The headers of a request have come: the handshake is over. */
void connection_limit_heard(struct connection_limit *p, struct MHD_Connection *conn);

/* A request of the client was admitted. -EAGAIN: the client has too many connections already. */
int connection_limit_admitted(struct connection_limit *p, struct MHD_Connection *conn,
                              const struct server_client *client, struct err *err);

#endif
