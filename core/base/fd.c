/* SPDX-License-Identifier: Apache-2.0
 *
 * fd: see fd.h.
 */
#include "core/base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"

bool fd_limit_reached(int rc)
{
    return rc == -EMFILE || rc == -ENFILE;
}

void fd_out_text(int rc, char *text, size_t size)
{
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    if (rc == -ENFILE)
        snprintf(text, size, "this machine may have no more open files: raise fs.file-max");
    else
        snprintf(text, size,
                 "this process may have no more than %llu descriptors: raise the limit (ulimit -n)",
                 (unsigned long long)limit.rlim_cur);
}

/* The soft limit before fd_limit_raise(); 0: fd_limit_raise() has changed nothing. */
static rlim_t limit_before;

void fd_limit_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max)
        return;
    rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0)
        limit_before = before;
}

void fd_limit_restore(void)
{
    struct rlimit limit;
    if (limit_before == 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit_before;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Returns how many descriptors a process has open, and this call's own if it is this process; 0
 * when /proc cannot be read. */
static size_t count_in(const char *path)
{
    DIR *d = opendir(path);
    size_t n = 0;
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

/* The memory of a descriptor if it is a memfd whose link reads `link`. A descriptor that is closed
 * meanwhile has none. */
static uint64_t memory_of(int dir, const char *entry, const char *link)
{
    char to[128];
    struct stat st;
    ssize_t len = readlinkat(dir, entry, to, sizeof(to));
    if (len != (ssize_t)strlen(link) || memcmp(to, link, (size_t)len) != 0 ||
        fstatat(dir, entry, &st, 0) < 0)
        return 0;
    return (uint64_t)st.st_blocks * 512;
}

bool fd_count(pid_t pid, const char *memfd, struct fd_use *ret)
{
    char path[64], link[96];
    struct rlimit limit;
    struct fd_use use = {0};
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    snprintf(link, sizeof(link), "/memfd:%s (deleted)", memfd);
    DIR *d = opendir(path);
    if (!d)
        return false;
    for (struct dirent *e; (e = readdir(d));) {
        use.open += e->d_name[0] != '.';
        use.memory += memory_of(dirfd(d), e->d_name, link);
    }
    closedir(d);
    if (use.open == 0 || prlimit(pid, RLIMIT_NOFILE, NULL, &limit) < 0)
        return false;
    use.most = limit.rlim_max;
    *ret = use;
    return true;
}

int fd_limit_need(size_t n, struct err *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    errno = 0;
    size_t with_dir = count_in("/proc/self/fd"), open = with_dir ? with_dir - 1 : 0;
    if (with_dir == 0 && errno == EMFILE) /* not one is free for this look */
        open = limit.rlim_cur;
    size_t all = open + n;
    if (all <= limit.rlim_cur)
        return 0;
    if (all > limit.rlim_max)
        return err_set(
            err, EMFILE,
            "this process needs %zu descriptors (%zu are open, %zu are to come), and may "
            "have no more than %llu: raise the limit (ulimit -Hn)",
            all, open, n, (unsigned long long)limit.rlim_max);
    /* A quarter more, for what the program opens meanwhile. */
    limit.rlim_cur = all + all / 4 < limit.rlim_max ? all + all / 4 : limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) < 0
               ? err_sys(err, errno, "cannot raise the limit of descriptors to %zu", all)
               : 0;
}

int fd_set_nonblock(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : 0;
}

int fd_set_cloexec(int fd, int on)
{
    return fcntl(fd, F_SETFD, on ? FD_CLOEXEC : 0) < 0 ? -errno : 0;
}

static int wait_for(int fd, short events, uint64_t deadline)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, deadline_poll_ms(deadline));
    if (n < 0 && errno != EINTR)
        return -errno;
    return n == 0 && deadline_passed(deadline) ? -ETIMEDOUT : 0;
}

int fd_read_full(int fd, void *dst, size_t n, uint64_t deadline)
{
    char *p = dst;
    while (n > 0) {
        int rc = wait_for(fd, POLLIN, deadline);
        if (rc < 0)
            return rc;
        ssize_t got = read(fd, p, n);
        if (got == 0)
            return -ECONNRESET;
        if (got < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return -errno;
        }
        p += got;
        n -= (size_t)got;
    }
    return 0;
}

int fd_write_full(int fd, const void *src, size_t n, uint64_t deadline)
{
    const char *p = src;
    while (n > 0) {
        int rc = wait_for(fd, POLLOUT, deadline);
        if (rc < 0)
            return rc;
        ssize_t put = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (put < 0 && errno == ENOTSOCK)
            put = write(fd, p, n);
        if (put < 0) {
            if (errno == EINTR || errno == EAGAIN)
                continue;
            return -errno;
        }
        p += put;
        n -= (size_t)put;
    }
    return 0;
}

int fd_read_file(const char *path, size_t max, char **ret_text, size_t *ret_len)
{
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t cap = max < 4096 ? max + 1 : 4096, len = 0;
    auto_free char *text = malloc(cap + 1);
    if (!text)
        return -ENOMEM;
    for (;;) {
        ssize_t got = read(fd, text + len, cap - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        len += (size_t)got;
        if (len > max)
            return -EFBIG;
        if (len == cap) {
            cap = cap * 2 > max ? max + 1 : cap * 2;
            char *grown = realloc(text, cap + 1);
            if (!grown)
                return -ENOMEM;
            text = grown;
        }
    }
    text[len] = '\0';
    *ret_text = TAKE(text);
    if (ret_len)
        *ret_len = len;
    return 0;
}

ssize_t fd_send(int sock, const void *src, size_t n, const int *fds, size_t nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FD_MAX_PASSED * sizeof(int))];
    } control;
    if (nfds > FD_MAX_PASSED)
        return -EINVAL;
    struct iovec iov = {.iov_base = (void *)src, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(c), fds, nfds * sizeof(int));
    }
    ssize_t put;
    do {
        put = sendmsg(sock, &msg, MSG_NOSIGNAL);
    } while (put < 0 && errno == EINTR);
    return put < 0 ? -errno : put;
}

/* Stores what fits into fds and closes the rest. Returns how many arrived. */
static size_t take_passed(struct msghdr *msg, int *fds, size_t room)
{
    size_t came = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++, came++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (came < room)
                fds[came] = fd;
            else
                close(fd);
        }
    }
    return came;
}

ssize_t fd_recv(int sock, void *dst, size_t n, int *fds, size_t *nfds)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(FD_MAX_PASSED * sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = dst, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = &control,
                         .msg_controllen = sizeof(control)};
    ssize_t got;
    do {
        got = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return -errno;
    size_t room = nfds ? *nfds : 0;
    size_t came = take_passed(&msg, fds, room);
    if (came > room || (msg.msg_flags & MSG_CTRUNC)) {
        for (size_t i = 0; i < came && i < room; i++)
            close(fds[i]);
        /* control has room for as many as fd_send() sends: a cut means that this process is at its
         * limit of descriptors. */
        return came > room ? -EPROTO : -EMFILE;
    }
    if (nfds)
        *nfds = came;
    return got;
}
