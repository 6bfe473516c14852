/* SPDX-License-Identifier: Apache-2.0
 *
 * handshake_limit: accepts connections for an HTTP server, with a limit on pending TLS handshakes
 * (each takes half a millisecond of CPU). libmicrohttpd itself would accept all waiting connections
 * at once. A handshake is pending until the connection's first request; after a second it no longer
 * counts, so a client that stalls does not block others for long. Part of server.c, on its loop.
 */
#ifndef HVD_MEMBER_HANDSHAKE_LIMIT_H
#define HVD_MEMBER_HANDSHAKE_LIMIT_H

#include <microhttpd.h>

#include "core/base/list.h"
#include "core/base/loop.h"

struct handshake_limit {
    struct loop *loop; /* NULL: not open */
    struct MHD_Daemon *daemon;
    int fd, limit;
    struct loop_fd lfd;
    struct loop_timer timer; /* ends a pause in accepting */
    struct list pending;
    int npending;
    void (*accepted)(void *arg);
    void *arg;
};

/* fd: a listening socket, owned by p from now on, even on failure. daemon: has no listening socket
 * of its own, and was started with handshake_limit_notify() as MHD_OPTION_NOTIFY_CONNECTION.
 * accepted() is called after connections were accepted. */
int handshake_limit_open(struct handshake_limit *p, struct loop *loop, int fd, int limit,
                         struct MHD_Daemon *daemon, void (*accepted)(void *arg), void *arg);

/* Call it before the daemon is stopped. Does nothing if p is not open. */
void handshake_limit_close(struct handshake_limit *p);

void handshake_limit_notify(void *arg, struct MHD_Connection *conn, void **context,
                            enum MHD_ConnectionNotificationCode what);

/* True while the limit is reached, or connections wait to be accepted. */
bool handshake_limit_reached(const struct handshake_limit *p);

/* The connection's first request has come: its handshake is over. */
void handshake_limit_done(struct handshake_limit *p, struct MHD_Connection *conn);

#endif
