/* SPDX-License-Identifier: Apache-2.0
 *
 * listen: see listen.h.
 */
#include "core/member/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "core/base/cleanup.h"

int listen_unix(const char *path, struct err *err)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(un.sun_path))
        return err_set(err, ENAMETOOLONG, "%s: too long for a Unix socket", path);
    auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "Unix socket");
    memcpy(un.sun_path, path, strlen(path) + 1);
    mode_t mask = umask(0177);
    int rc = bind(fd, (struct sockaddr *)&un, sizeof(un));
    int bind_errno = errno;
    umask(mask);
    if (rc < 0)
        return err_sys(err, bind_errno, "%s", path);
    if (listen(fd, 64) < 0)
        return err_sys(err, errno, "%s", path);
    return take_fd(&fd);
}

int listen_tcp(const char *address, int port, int *ret_port, struct err *err)
{
    struct sockaddr_storage sa = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&sa;
    socklen_t len;
    if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        len = sizeof(*v4);
    } else if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        len = sizeof(*v6);
    } else {
        return err_set(err, EINVAL, "%s: not an address", address);
    }
    auto_close int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(err, errno, "socket");
    /* A coordinator that takes over (hvdrun attach) must be able to bind this port while old
     * connections are still in TIME_WAIT. The kernel allows that only if both sockets set
     * SO_REUSEADDR. */
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(fd, (struct sockaddr *)&sa, len) < 0 || listen(fd, 1024) < 0)
        return err_sys(err, errno, "listen on %s port %d", address, port);
    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return err_sys(err, errno, "%s", address);
    *ret_port = ntohs(sa.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
    return take_fd(&fd);
}
