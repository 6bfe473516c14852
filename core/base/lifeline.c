/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline: see lifeline.h. This file has the watcher's side, lifeline_hold.c the holder's,
 * lifeline_page.h what both share.
 */
#include "core/base/lifeline.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/lifeline_page.h"

#define TURN_NS            100000
#define TURN_RESET_ON_FORK 1

struct lifeline {
    const struct lifeline_page *page; /* mapped read-only */
    int event_fd;
    pthread_t thread;
    bool started;
    _Atomic bool stop, ended;
    _Atomic int state;
    uint64_t pidns;
    uint64_t stale_ns; /* a watcher that has not polled for this long starts to measure anew */
    /* for lifeline_silence() only */
    uint64_t beats, seen_at, looked_at;
};

/* struct sched_attr; some libc headers have it, some do not. */
struct turns {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

void lifeline_raise_priority(void)
{
    struct turns t = {0};
    if (syscall(SYS_sched_getattr, 0, &t, sizeof(t), 0) < 0 ||
        (t.policy != SCHED_OTHER && t.policy != SCHED_BATCH))
        return;
    t.size = sizeof(t);
    t.flags = TURN_RESET_ON_FORK;
    t.runtime = TURN_NS;
    syscall(SYS_sched_setattr, 0, &t, 0); /* kernels before 6.12 accept it without effect */
}

enum lifeline_state lifeline_next(enum lifeline_state before, uint32_t old, uint32_t word)
{
    if (word == LIFELINE_WORD_RELEASED)
        return LIFELINE_RELEASED;
    if (word & FUTEX_OWNER_DIED)
        return LIFELINE_DEAD;
    if (before == LIFELINE_NEW && word == 0)
        return LIFELINE_NEW;
    /* A HELD futex keeps the thread id of its one holder. It also needs FUTEX_WAITERS, without
     * which the kernel would wake nobody at the holder's death. */
    bool held = (word & FUTEX_WAITERS) && (word & FUTEX_TID_MASK);
    return held && (before == LIFELINE_NEW || word == old) ? LIFELINE_HELD : LIFELINE_BROKEN;
}

static void *watch(void *arg)
{
    struct lifeline *l = arg;
    enum lifeline_state state = LIFELINE_NEW;
    uint32_t old = 0;
    lifeline_raise_priority();
    while (!atomic_load(&l->stop)) {
        uint32_t word = atomic_load(&l->page->word);
        state = lifeline_next(state, old, word);
        atomic_store(&l->state, (int)state);
        if (state > LIFELINE_HELD) {
            eventfd_write(l->event_fd, 1);
            break;
        }
        old = word;
        lifeline_futex_wait(&l->page->word, word, NULL);
    }
    atomic_store(&l->ended, true);
    return NULL;
}

/* The memory behind the page. Its size is sealed, so that reading it cannot raise SIGBUS. */
static int make_page(int beat_ms, int *ret_fd, struct err *err)
{
    struct lifeline_page first = {.magic = LIFELINE_MAGIC, .beat_ms = (uint32_t)beat_ms};
    auto_close int fd = memfd_create("hvd-lifeline", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(err, errno, "memfd of a lifeline");
    if (ftruncate(fd, LIFELINE_PAGE) < 0 ||
        pwrite(fd, &first, sizeof(first), 0) != (ssize_t)sizeof(first) ||
        fcntl(fd, F_ADD_SEALS, LIFELINE_SEALS) < 0)
        return err_sys(err, errno, "memory of a lifeline");
    *ret_fd = take_fd(&fd);
    return 0;
}

int lifeline_create(struct lifeline **ret, int beat_ms, int *ret_fd, struct err *err)
{
    auto_close int fd = -1;
    if (beat_ms < LIFELINE_BEAT_MS_MIN || beat_ms > LIFELINE_BEAT_MS_MAX)
        return err_set(err, EINVAL, "a beat of %d ms: want %d to %d", beat_ms, LIFELINE_BEAT_MS_MIN,
                       LIFELINE_BEAT_MS_MAX);
    struct lifeline *l = calloc(1, sizeof(*l));
    if (!l)
        return err_set(err, ENOMEM, "no memory for a lifeline");
    l->event_fd = -1;
    int rc = make_page(beat_ms, &fd, err);
    if (rc < 0)
        goto error;
    void *page = mmap(NULL, LIFELINE_PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        rc = err_sys(err, errno, "mmap of a lifeline");
        goto error;
    }
    l->page = page;
    l->pidns = lifeline_pid_namespace();
    l->stale_ns = (uint64_t)(beat_ms < 100 ? 300 : 3 * beat_ms) * CLOCK_MS;
    l->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (l->event_fd < 0) {
        rc = err_sys(err, errno, "eventfd of a lifeline");
        goto error;
    }
    rc = lifeline_thread_start(&l->thread, watch, l);
    if (rc < 0) {
        rc = err_sys(err, -rc, "thread of a lifeline");
        goto error;
    }
    l->started = true;
    *ret = l;
    *ret_fd = take_fd(&fd);
    return 0;
error:
    lifeline_destroy(l);
    return rc;
}

void lifeline_destroy(struct lifeline *l)
{
    if (!l)
        return;
    atomic_store(&l->stop, true);
    /* Repeats the wake until the thread has ended: the thread may be about to wait, and the holder
     * may change the page meanwhile. */
    while (l->started && !atomic_load(&l->ended)) {
        lifeline_futex_wake(&l->page->word);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    if (l->started)
        pthread_join(l->thread, NULL);
    if (l->page)
        munmap((void *)l->page, LIFELINE_PAGE);
    if (l->event_fd >= 0)
        close(l->event_fd);
    free(l);
}

int lifeline_event_fd(const struct lifeline *l)
{
    return l->event_fd;
}

enum lifeline_state lifeline_state(const struct lifeline *l)
{
    return (enum lifeline_state)atomic_load(&l->state);
}

uint64_t lifeline_silence(struct lifeline *l, uint64_t now)
{
    uint64_t beats = atomic_load(&l->page->beats);
    bool absent = now - l->looked_at > l->stale_ns;
    l->looked_at = now;
    if (absent || beats != l->beats || lifeline_state(l) != LIFELINE_HELD) {
        l->beats = beats;
        l->seen_at = now;
    }
    return now - l->seen_at;
}

pid_t lifeline_pid(const struct lifeline *l)
{
    if (atomic_load(&l->page->pidns) != l->pidns) /* 0 until the holder writes it */
        return 0;
    uint32_t pid = atomic_load(&l->page->pid);
    return pid <= INT32_MAX ? (pid_t)pid : 0;
}
