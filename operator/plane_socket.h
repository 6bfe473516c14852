/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_socket: the Unix socket on which hvd-operator waits for hvd-plane. Only the user that the
 * plane runs as may connect (SO_PEERCRED). Owned by coordination.c, on its loop.
 */
#ifndef HVD_OPERATOR_PLANE_SOCKET_H
#define HVD_OPERATOR_PLANE_SOCKET_H

#include <sys/types.h>

#include "core/base/err.h"
#include "core/base/loop.h"

struct plane_socket;

struct plane_socket_config {
    struct loop *loop;
    const char *path;                     /* copied; a socket that is there already is replaced */
    uid_t uid;                            /* the plane's user */
    void (*connected)(void *arg, int fd); /* takes over fd */
    void *arg;
};

/* The socket's mode is 0660: the plane's user needs the group of the folder or of this process. */
int plane_socket_open(struct plane_socket **ret, const struct plane_socket_config *config,
                      struct err *err);

/* Removes the socket. NULL is fine. */
void plane_socket_close(struct plane_socket *s);

#endif
