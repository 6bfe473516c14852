/* SPDX-License-Identifier: Apache-2.0
 *
 * porter: lets connections into an HTTP server, so many at a time that their TLS handshakes (half a
 * millisecond each) never take long: libmicrohttpd by itself would take all that wait. A guest is a
 * connection from which no request has come; after a second it does not count any more: who does
 * not go on with his handshake holds up nobody for long. Part of server.c, on its loop.
 */
#ifndef HVD_MEMBER_PORTER_H
#define HVD_MEMBER_PORTER_H

#include <microhttpd.h>

#include "core/base/list.h"
#include "core/base/loop.h"

struct porter {
    struct loop *loop; /* NULL: not open */
    struct MHD_Daemon *daemon;
    int fd, most;
    struct loop_fd lfd;
    struct loop_timer timer; /* after a pause */
    struct list guests;
    int nguests;
    void (*came)(void *arg);
    void *arg;
};

/* fd is listening and becomes the porter's in any case. The daemon has no socket of its own, and
 * porter_notify() as MHD_OPTION_NOTIFY_CONNECTION. came: somebody was let in. */
int porter_open(struct porter *p, struct loop *loop, int fd, int most, struct MHD_Daemon *daemon,
                void (*came)(void *arg), void *arg);

/* Before the daemon is stopped; one that was not opened is fine. */
void porter_close(struct porter *p);

void porter_notify(void *arg, struct MHD_Connection *conn, void **context,
                   enum MHD_ConnectionNotificationCode what);

/* A request of this connection has come. */
void porter_welcome(struct porter *p, struct MHD_Connection *conn);

#endif
