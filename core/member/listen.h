/* SPDX-License-Identifier: Apache-2.0
 *
 * listen: creates a server's listening sockets: nonblocking, close-on-exec. The caller owns the
 * descriptor.
 */
#ifndef HVD_MEMBER_LISTEN_H
#define HVD_MEMBER_LISTEN_H

#include "core/base/err.h"

/* Creates the socket file with mode 0600. The caller removes the file when it closes the
 * descriptor. */
int listen_unix(const char *path, struct err *err);

/* Listens on a numeric address. Port 0 chooses a free port, returned in *ret_port. */
int listen_tcp(const char *address, int port, int *ret_port, struct err *err);

#endif
