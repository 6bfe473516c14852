/* SPDX-License-Identifier: Apache-2.0
 *
 * listen: sockets that a server listens on: nonblocking, close-on-exec. The descriptor is the
 * caller's.
 */
#ifndef HVD_MEMBER_LISTEN_H
#define HVD_MEMBER_LISTEN_H

#include "core/base/err.h"

/* The file is made with mode 0600; whoever closes the descriptor removes it. */
int listen_unix(const char *path, struct err *err);

/* On a numeric address; port 0 chooses one, *ret_port says which. */
int listen_tcp(const char *address, int port, int *ret_port, struct err *err);

#endif
