/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: a small epoll loop: descriptors, timers, signals, ends of processes. One thread.
 *
 * struct loop_fd and struct loop_timer are embedded in what they belong to; the loop holds a
 * pointer to them between start and stop. A callback may start and stop anything, itself included.
 * The loop owns the signalfd and pidfds it makes, never a descriptor that it was given.
 */
#ifndef HVD_BASE_LOOP_H
#define HVD_BASE_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

#include "core/base/list.h"

typedef void loop_fd_f(void *arg, uint32_t events); /* EPOLLIN ... as epoll gives them */
typedef void loop_timer_f(void *arg);

struct loop_fd {
    bool on; /* started; zero-initialized: not */
    bool own;
    bool added; /* known to epoll: events is not 0 */
    int fd;
    uint32_t events;
    loop_fd_f *cb;
    void *arg;
};

struct loop_timer {
    bool on;
    uint64_t due; /* clock_ns() */
    loop_timer_f *cb;
    void *arg;
    struct list node;
};

#define LOOP_BATCH 16

struct loop {
    int epfd;
    bool stop;
    int nbatch;
    struct epoll_event batch[LOOP_BATCH];
    struct list timers; /* by due */
};

int loop_init(struct loop *loop);

/* What is still started is forgotten; descriptors stay open. */
void loop_fini(struct loop *loop);

/* events 0: known, but silent (not even EPOLLHUP). -EPERM: a regular file, which never waits. */
int loop_fd_start(struct loop *loop, struct loop_fd *lfd, int fd, uint32_t events, loop_fd_f *cb,
                  void *arg);
int loop_fd_set(struct loop *loop, struct loop_fd *lfd, uint32_t events);
void loop_fd_stop(struct loop *loop, struct loop_fd *lfd);

/* Once, after ms; starting a started one moves it. */
void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t ms, loop_timer_f *cb,
                      void *arg);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

/* Blocks the signals of set in this thread and calls back when one is pending; take them with
 * loop_signal_next(). */
int loop_signals_start(struct loop *loop, struct loop_fd *lfd, const sigset_t *set, loop_fd_f *cb,
                       void *arg);

/* The next pending signal's number, 0 when there is none. */
int loop_signal_next(struct loop_fd *lfd);

/* Calls back when process pid has ended (any process, not only a child); -ESRCH: it has already. */
int loop_pid_start(struct loop *loop, struct loop_fd *lfd, pid_t pid, loop_fd_f *cb, void *arg);

/* Waits once, at most max_ms (-1: for ever), and runs what is due. */
int loop_once(struct loop *loop, int max_ms);

/* Until loop_stop(). */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

#endif
