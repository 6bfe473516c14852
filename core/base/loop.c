/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: see loop.h.
 */
#include "core/base/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"

int loop_init(struct loop *loop)
{
    int epfd = epoll_create1(EPOLL_CLOEXEC);
    if (epfd < 0)
        return -errno;
    *loop = (struct loop){.epfd = epfd};
    list_init(&loop->timers);
    return 0;
}

void loop_fini(struct loop *loop)
{
    list_for_each(pos, tmp, &loop->timers)
    {
        list_entry(pos, struct loop_timer, node)->on = false;
        list_remove(pos);
    }
    if (loop->epfd >= 0)
        close(loop->epfd);
    loop->epfd = -1;
}

int loop_fd_start(struct loop *loop, struct loop_fd *lfd, int fd, uint32_t events, loop_fd_f *cb,
                  void *arg)
{
    *lfd = (struct loop_fd){.on = true, .fd = fd, .cb = cb, .arg = arg};
    int rc = loop_fd_set(loop, lfd, events);
    if (rc < 0)
        lfd->on = false;
    return rc;
}

int loop_fd_set(struct loop *loop, struct loop_fd *lfd, uint32_t events)
{
    if (!lfd->on || events == lfd->events)
        return 0;
    struct epoll_event ev = {.events = events, .data.ptr = lfd};
    int how = !events ? EPOLL_CTL_DEL : lfd->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(loop->epfd, how, lfd->fd, &ev) < 0)
        return -errno;
    lfd->added = events != 0;
    lfd->events = events;
    return 0;
}

void loop_fd_stop(struct loop *loop, struct loop_fd *lfd)
{
    if (!lfd->on)
        return;
    loop_fd_set(loop, lfd, 0);
    /* This iteration's batch may still contain its event. */
    for (int i = 0; i < loop->nbatch; i++)
        if (loop->batch[i].data.ptr == lfd)
            loop->batch[i].data.ptr = NULL;
    if (lfd->own)
        close(lfd->fd);
    lfd->on = false;
}

void loop_timer_start(struct loop *loop, struct loop_timer *timer, uint64_t ms, loop_timer_f *cb,
                      void *arg)
{
    loop_timer_stop(loop, timer);
    *timer = (struct loop_timer){.on = true, .due = deadline_in_ms(ms), .cb = cb, .arg = arg};
    struct list *after = loop->timers.prev;
    while (after != &loop->timers && list_entry(after, struct loop_timer, node)->due > timer->due)
        after = after->prev;
    list_append(after->next, &timer->node); /* inserts before the first later timer */
}

void loop_timer_stop(struct loop *loop, struct loop_timer *timer)
{
    (void)loop;
    if (!timer->on)
        return;
    list_remove(&timer->node);
    timer->on = false;
}

int loop_signals_start(struct loop *loop, struct loop_fd *lfd, const sigset_t *set, loop_fd_f *cb,
                       void *arg)
{
    if (sigprocmask(SIG_BLOCK, set, NULL) < 0)
        return -errno;
    int fd = signalfd(-1, set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    int rc = loop_fd_start(loop, lfd, fd, EPOLLIN, cb, arg);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    lfd->own = true;
    return 0;
}

int loop_signal_next(struct loop_fd *lfd)
{
    struct signalfd_siginfo info;
    return read(lfd->fd, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

int loop_pid_start(struct loop *loop, struct loop_fd *lfd, pid_t pid, loop_fd_f *cb, void *arg)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0); /* close-on-exec by definition */
    if (fd < 0)
        return -errno;
    int rc = loop_fd_start(loop, lfd, fd, EPOLLIN, cb, arg);
    if (rc < 0) {
        close(fd);
        return rc;
    }
    lfd->own = true;
    return 0;
}

static void run_timers(struct loop *loop)
{
    /* A timer that its own callback starts again with 0 ms runs in the next iteration, after the
     * descriptors. */
    uint64_t now = clock_ns();
    while (!list_empty(&loop->timers) && !loop->stop) {
        struct loop_timer *timer = list_first(&loop->timers, struct loop_timer, node);
        if (timer->due > now)
            return;
        loop_timer_stop(loop, timer);
        timer->cb(timer->arg);
    }
}

int loop_once(struct loop *loop, int max_ms)
{
    int ms = max_ms;
    if (!list_empty(&loop->timers)) {
        int left = deadline_poll_ms(list_first(&loop->timers, struct loop_timer, node)->due);
        ms = max_ms < 0 || left < max_ms ? left : max_ms;
    }
    int n = epoll_wait(loop->epfd, loop->batch, LOOP_BATCH, ms);
    if (n < 0 && errno != EINTR)
        return -errno;
    loop->nbatch = n < 0 ? 0 : n;
    for (int i = 0; i < loop->nbatch && !loop->stop; i++) {
        struct loop_fd *lfd = loop->batch[i].data.ptr;
        if (lfd)
            lfd->cb(lfd->arg, loop->batch[i].events);
    }
    loop->nbatch = 0;
    run_timers(loop);
    return 0;
}

int loop_run(struct loop *loop)
{
    int rc = 0;
    loop->stop = false;
    while (!loop->stop && rc == 0)
        rc = loop_once(loop, -1);
    return rc;
}

void loop_stop(struct loop *loop)
{
    loop->stop = true;
}
