/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: a small epoll loop: descriptors, timers, signals, ends of processes. One thread.
 *
 * struct loop_fd and struct loop_timer are embedded in the object they belong to; the loop keeps a
 * pointer to them between start and stop. A callback may start and stop any of them, its own
 * included. The loop owns the signalfd and pidfds that it makes, never a descriptor that the caller
 * gave it.
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
    bool on; /* started; false when zero-initialized */
    bool own;
    bool added; /* epoll knows fd: events is not 0 */
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
    struct list timers; /* ordered by due */
};

int loop_init(struct loop *loop);

/* Drops all timers that are still started. Leaves descriptors open. */
void loop_fini(struct loop *loop);

/* events 0 registers fd without any events, not even EPOLLHUP. -EPERM: a regular file, for which
 * epoll cannot wait. */
int loop_fd_start(struct loop *loop, struct loop_fd *lfd, int fd, uint32_t events, loop_fd_f *cb,
                  void *arg);
int loop_fd_set(struct loop *loop, struct loop_fd *lfd, uint32_t events);
void loop_fd_stop(struct loop *loop, struct loop_fd *lfd);

/* Calls back once, after ms. Starting a started timer moves it. */
void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t ms, loop_timer_f *cb,
                      void *arg);
void loop_timer_stop(struct loop *loop, struct loop_timer *timer);

/* Blocks the signals of set in this thread and calls back when one is pending. The callback takes
 * them with loop_signal_next(). */
int loop_signals_start(struct loop *loop, struct loop_fd *lfd, const sigset_t *set, loop_fd_f *cb,
                       void *arg);

/* The next pending signal's number, 0 when there is none. */
int loop_signal_next(struct loop_fd *lfd);

/* Calls back when process pid has ended; any process, not only a child. -ESRCH: it has ended
 * already. */
int loop_pid_start(struct loop *loop, struct loop_fd *lfd, pid_t pid, loop_fd_f *cb, void *arg);

/* One iteration: waits at most max_ms (-1: no limit) and runs what is due. */
int loop_once(struct loop *loop, int max_ms);

/* Iterates until loop_stop(). */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

#endif
