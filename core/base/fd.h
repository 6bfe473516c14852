/* SPDX-License-Identifier: Apache-2.0
 *
 * fd: descriptors: whole reads and writes with a deadline, descriptors over Unix sockets.
 *
 * Deadlines are clock_ns() values (base/clock.h). A deadline that passes is -ETIMEDOUT, an end of
 * file before the last byte -ECONNRESET. Any thread; the caller owns every fd.
 */
#ifndef HVD_BASE_FD_H
#define HVD_BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"

/* rc is -EMFILE or -ENFILE: this process, or the machine, may have no more of them. */
bool fd_is_out(int rc);

/* Then: "this process may have no more than 10 descriptors: raise the limit (ulimit -n)". */
void fd_out_text(int rc, char *text, size_t size);

/* The soft limit of descriptors becomes the hard one. For processes of hvd, not of the user: a
 * program that calls select(2) breaks when it is given a descriptor above 1023. */
void fd_limit_raise(void);

/* In a child, before exec: the limit is again as it was before fd_limit_raise(). Async-signal-safe.
 */
void fd_limit_restore(void);

/* This process is going to open n descriptors more: raises the soft limit as far as they need and
 * the hard limit allows. -EMFILE with err, which names both numbers: they do not fit. */
int fd_limit_need(size_t n, struct err *err);

int fd_set_nonblock(int fd);
int fd_set_cloexec(int fd, int on);

/* Exactly n bytes, blocking or not; poll(2) in between. */
int fd_read_full(int fd, void *dst, size_t n, uint64_t deadline);
int fd_write_full(int fd, const void *src, size_t n, uint64_t deadline);

/* One whole regular file of at most max bytes into a fresh NUL-terminated string (free() it);
 * -EFBIG when it is longer. */
int fd_read_file(const char *path, size_t max, char **ret_text, size_t *ret_len);

#define FD_MAX_PASSED 253 /* of one message: Linux takes no more (SCM_MAX_FD) */

/* One sendmsg(2)/recvmsg(2) on a Unix socket with up to FD_MAX_PASSED descriptors beside the bytes
 * (n >= 1). Nonblocking: -EAGAIN. recv: bytes received, 0 at the end; received descriptors are
 * close-on-exec and the caller's; nfds is in: room, out: how many. A control message that was cut
 * closes what came: -EPROTO when there are more than nfds, -EMFILE when this process may have no
 * more of them. */
ssize_t fd_send(int sock, const void *src, size_t n, const int *fds, size_t nfds);
ssize_t fd_recv(int sock, void *dst, size_t n, int *fds, size_t *nfds);

#endif
