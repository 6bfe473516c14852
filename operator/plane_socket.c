/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_socket: see plane_socket.h.
 */
#include "operator/plane_socket.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/member/listen.h"

struct plane_socket {
    struct plane_socket_config config;
    char *path;
    int fd;
    struct loop_fd lfd;
};

/* Returns whether the other end is a process of the plane's user. */
static bool is_plane(const struct plane_socket *s, int fd)
{
    struct ucred cred = {0};
    socklen_t len = sizeof(cred);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 && cred.uid == s->config.uid)
        return true;
    log_warn("refused a process of user %ld on %s: hvd-plane runs as user %ld (--plane-uid)",
             (long)cred.uid, s->path, (long)s->config.uid);
    return false;
}

static void on_connection(void *arg, uint32_t events)
{
    struct plane_socket *s = arg;
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    (void)events;
    if (fd < 0)
        return;
    if (is_plane(s, fd))
        s->config.connected(s->config.arg, fd);
    else
        close(fd);
}

int plane_socket_open(struct plane_socket **ret, const struct plane_socket_config *config,
                      struct err *err)
{
    struct plane_socket *s = calloc(1, sizeof(*s));
    struct stat st;
    if (!s || !(s->path = strdup(config->path))) {
        free(s);
        return err_set(err, ENOMEM, "no memory for the plane's socket");
    }
    s->config = *config;
    s->config.path = s->path;
    if (lstat(s->path, &st) == 0 && S_ISSOCK(st.st_mode))
        unlink(s->path);
    int rc = s->fd = listen_unix(s->path, err);
    if (rc >= 0 && chmod(s->path, 0660) < 0)
        rc = err_sys(err, errno, "%s", s->path);
    if (rc >= 0) {
        rc = loop_fd_start(config->loop, &s->lfd, s->fd, EPOLLIN, on_connection, s);
        rc = rc < 0 ? err_sys(err, -rc, "%s", s->path) : 0;
    }
    if (rc < 0) {
        plane_socket_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void plane_socket_close(struct plane_socket *s)
{
    if (!s)
        return;
    loop_fd_stop(s->config.loop, &s->lfd);
    if (s->fd >= 0) {
        close(s->fd);
        unlink(s->path);
    }
    free(s->path);
    free(s);
}
