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

/* Returns whether rc is -EMFILE or -ENFILE: this process, or the machine, has reached its limit of
 * descriptors. */
bool fd_limit_reached(int rc);

/* Writes to text which limit rc (-EMFILE or -ENFILE) means and how to raise it: "this process may
 * have no more than 10 descriptors: raise the limit (ulimit -n)". */
void fd_out_text(int rc, char *text, size_t size);

/* Raises the soft limit of descriptors to the hard one. For hvd's own processes, not the user's: a
 * program that calls select(2) breaks when it gets a descriptor above 1023. */
void fd_limit_raise(void);

/* In a child, before exec: undoes fd_limit_raise(). Async-signal-safe. */
void fd_limit_restore(void);

/* Call before opening n more descriptors: raises the soft limit as far as needed. -EMFILE when the
 * hard limit is too low; err names both numbers. */
int fd_limit_need(size_t n, struct err *err);

struct fd_use {
    uint64_t open;   /* descriptors */
    uint64_t most;   /* how many the process may have: its hard limit */
    uint64_t memory; /* bytes of memory in its memfds */
};

/* Counts the descriptors of a process, and the memory in those that are memfds of this name: pages
 * that were written, by any process, not the file's size. False, without a result, if the process
 * has ended or may not be looked into. */
bool fd_count(pid_t pid, const char *memfd, struct fd_use *ret);

int fd_set_nonblock(int fd);
int fd_set_cloexec(int fd, int on);

/* Transfers exactly n bytes on a blocking or nonblocking fd; waits with poll(2). */
int fd_read_full(int fd, void *dst, size_t n, uint64_t deadline);
int fd_write_full(int fd, const void *src, size_t n, uint64_t deadline);

/* Reads a regular file of at most max bytes into a new NUL-terminated string, which the caller
 * frees. -EFBIG when the file is longer. */
int fd_read_file(const char *path, size_t max, char **ret_text, size_t *ret_len);

#define FD_MAX_PASSED 253 /* in one message: the limit of Linux (SCM_MAX_FD) */

/* One sendmsg(2)/recvmsg(2) on a Unix socket, of n >= 1 bytes and up to FD_MAX_PASSED descriptors.
 * -EAGAIN on a nonblocking socket. fd_recv() returns the bytes received, 0 at the end of file. The
 * caller owns the received descriptors, which are close-on-exec; *nfds is the room before the call,
 * the number received after it. If some do not fit, all are closed: -EPROTO when there are more
 * than *nfds, -EMFILE when this process is at its limit. */
ssize_t fd_send(int sock, const void *src, size_t n, const int *fds, size_t nfds);
ssize_t fd_recv(int sock, void *dst, size_t n, int *fds, size_t *nfds);

#endif
