/* SPDX-License-Identifier: Apache-2.0
 *
 * drive: see drive.h.
 *
 * Every hand-over follows one pattern. The thread that leaves first stores (unlocks), then loads
 * (does a thread sleep?). The thread that is about to sleep first stores (I sleep), then loads (is
 * the lock held, is there work?). All of these accesses are sequentially consistent, so at least
 * one of the two threads sees the other's store (tests/litmus/engine.litmus).
 */
#include "core/engine/drive.h"

#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/pause.h"
#include "core/engine/engine.h"
#include "core/engine/turn.h"
#include "core/base/thread.h"

#define NAP_NS     (2 * CLOCK_MS)  /* how long the thread naps */
#define RECHECK_NS (20 * CLOCK_MS) /* a sleeper checks again after this, even if not woken */
#define POLL_NS    (CLOCK_MS / 10) /* sleep while nothing would wake us */
#define FULL_EACH  16              /* every 16th spinning turn also checks the sockets */

static void futex_wait(_Atomic uint32_t *word, uint32_t value, uint64_t ns)
{
    struct timespec ts = {.tv_sec = (time_t)(ns / CLOCK_S), .tv_nsec = (long)(ns % CLOCK_S)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &ts, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void signal_fd(int fd)
{
    /* write() fails only when the counter is full: then the sleeper is awake already. */
    uint64_t one = 1;
    ssize_t ignored = write(fd, &one, sizeof(one));
    (void)ignored;
}

static void drain_fd(int fd)
{
    uint64_t count;
    ssize_t ignored = read(fd, &count, sizeof(count));
    (void)ignored;
}

/* Waits until one of the descriptors is readable or the clock is `due` (UINT64_MAX: no limit). */
static int wait_fds(int fd, int other, uint64_t due)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    struct timespec ts = {0};
    if (due != UINT64_MAX) {
        uint64_t now = clock_ns(), left = due > now ? due - now : 0;
        ts = (struct timespec){.tv_sec = (time_t)(left / CLOCK_S),
                               .tv_nsec = (long)(left % CLOCK_S)};
    }
    int n = ppoll(fds, 2, due == UINT64_MAX ? NULL : &ts, NULL);
    if (n > 0 && fds[0].revents)
        drain_fd(fd);
    return n;
}

/* ---- the lock ---- */

static bool try_lock(struct drive *d)
{
    int expected = DRIVER_NONE;
    return atomic_load(&d->driver) == DRIVER_NONE &&
           atomic_compare_exchange_strong(&d->driver, &expected, DRIVER_RUNS);
}

static void wake_sleepers(struct drive *d)
{
    atomic_fetch_add(&d->turn, 1);
    futex_wake_all(&d->turn);
}

static void unlock(struct drive *d)
{
    atomic_store(&d->driver, DRIVER_NONE);
    if (atomic_load(&d->waiters) > 0 || atomic_load(&d->lock_requests) > 0)
        wake_sleepers(d);
}

static void wake_thread(struct drive *d)
{
    int state = atomic_load(&d->thread_state);
    if (state != THREAD_RUNS &&
        atomic_compare_exchange_strong(&d->thread_state, &state, THREAD_RUNS))
        signal_fd(d->thread_fd);
}

static void wake_driver(struct drive *d)
{
    if (atomic_load(&d->driver) == DRIVER_SLEEPS)
        signal_fd(d->driver_fd);
}

void drive_wake_waiters(struct engine *e)
{
    if (atomic_load(&e->drive.waiters) > 0)
        wake_sleepers(&e->drive);
}

/* The thread was idle. Peers need not ring this rank's doorbell any more; the thread naps
 * instead. */
static void disarm(struct engine *e)
{
    if (!e->drive.armed)
        return;
    circles_sleep_end(e);
    e->drive.armed = false;
}

static void enter(struct engine *e)
{
    struct drive *d = &e->drive;
    d->driven = true;
    if (d->armed) {
        disarm(e);
        wake_thread(d);
    }
}

bool drive_try(struct engine *e)
{
    if (atomic_load_explicit(&e->drive.lock_requests, memory_order_relaxed) > 0 ||
        !try_lock(&e->drive))
        return false;
    enter(e);
    return true;
}

bool drive_lock_unless(struct engine *e, const _Atomic int *busy)
{
    struct drive *d = &e->drive;
    bool locked;
    atomic_fetch_add(&d->lock_requests, 1);
    while (!(locked = try_lock(d)) && !(busy && atomic_load(busy))) {
        uint32_t t = atomic_load(&d->turn);
        wake_driver(d);
        if (atomic_load(&d->driver))
            futex_wait(&d->turn, t, RECHECK_NS);
    }
    atomic_fetch_sub(&d->lock_requests, 1);
    if (locked)
        enter(e);
    return locked;
}

void drive_lock(struct engine *e)
{
    drive_lock_unless(e, NULL);
}

void drive_leave(struct engine *e)
{
    struct drive *d = &e->drive;
    for (;;) {
        bool work = turn_needed(e);
        atomic_store(&d->work, work);
        unlock(d);
        if (atomic_load(&d->thread_state) == THREAD_SLEEPS ||
            (work && atomic_load(&d->waiters) == 0))
            wake_thread(d);
        /* Another thread may have submitted while this one still held the lock. */
        if (!queue_has_new(e->queue) || atomic_load(&d->closing) || !try_lock(d))
            return;
        turn(e, TURN_SPIN);
    }
}

/* ---- callers ---- */

static bool wanted_elsewhere(struct drive *d)
{
    return atomic_load(&d->lock_requests) > 0 || atomic_load(&d->closing);
}

/* Whether a caller's wait is over. It is when the slot is done. If aloft is not 0, it is a handle,
 * and the wait is also over when a stream can wait for the operation or the slot has another
 * handle. */
static bool is_over(struct slot *slot, hvd_handle aloft)
{
    return atomic_load(&slot->done) ||
           (aloft && (atomic_load(&slot->aloft) || atomic_load(&slot->handle) != aloft));
}

/* Clock time at which the driver must look again even if nothing wakes it. */
static uint64_t wake_by(struct engine *e)
{
    uint64_t poll = drive_wait_kind(e) != COLL_WAKES ? clock_ns() + POLL_NS : UINT64_MAX;
    uint64_t tick = circles_next_tick(e);
    return tick < poll ? tick : poll;
}

static void sleep_as_driver(struct engine *e, struct slot *slot, hvd_handle aloft)
{
    struct drive *d = &e->drive;
    turn_prioritize(e, slot, PRIORITY_WAITED);
    if (turn(e, TURN_FULL))
        return;
    circles_sleep_begin(e);
    atomic_store(&d->driver, DRIVER_SLEEPS);
    bool moved = turn(e, TURN_CHECK);
    if (!moved && !is_over(slot, aloft) && !queue_has_new(e->queue) && !wanted_elsewhere(d) &&
        !atomic_load(&d->priority_requests))
        wait_fds(d->driver_fd, circles_fd(e), wake_by(e));
    atomic_store(&d->driver, DRIVER_RUNS);
    circles_sleep_end(e);
}

static void until(struct engine *e, struct slot *slot, hvd_handle aloft)
{
    struct drive *d = &e->drive;
    struct spin_state spin = {0};
    bool prioritized = false;
    for (unsigned n = d->turns + 1; !is_over(slot, aloft); n++) {
        if (wanted_elsewhere(d)) {
            d->turns = n - 1;
            return;
        }
        if (!prioritized && slot->state == SLOT_NEGOTIATING) {
            turn_prioritize(e, slot, PRIORITY_WAITED);
            prioritized = true;
        }
        if (turn(e, n % FULL_EACH ? TURN_SPIN : TURN_FULL)) {
            spin = (struct spin_state){0};
            continue;
        }
        if (is_over(slot, aloft))
            break;
        if (drive_pause(e, &spin))
            continue;
        sleep_as_driver(e, slot, aloft);
        spin = (struct spin_state){0};
        n = FULL_EACH - 1; /* makes the next turn a full one */
    }
    d->turns = 0;
}

void drive_until(struct engine *e, struct slot *slot)
{
    until(e, slot, 0);
}

void drive_prioritize(struct engine *e, struct slot *slot, enum priority priority)
{
    int before = PRIORITY_NONE;
    while (before < (int)priority &&
           !atomic_compare_exchange_weak(&slot->prioritized, &before, (int)priority))
        ;
    if (before >= (int)priority)
        return;
    atomic_fetch_add(&e->drive.priority_requests, 1);
    wake_driver(&e->drive);
    if (!atomic_load(&e->drive.driver))
        wake_thread(&e->drive);
}

static void wait_for(struct engine *e, struct slot *slot, hvd_handle aloft)
{
    struct drive *d = &e->drive;
    while (!is_over(slot, aloft)) {
        if (!wanted_elsewhere(d) && drive_try(e)) {
            until(e, slot, aloft);
            drive_leave(e);
            continue;
        }
        drive_prioritize(e, slot, PRIORITY_WAITED);
        atomic_fetch_add(&d->waiters, 1);
        uint32_t t = atomic_load(&d->turn);
        if (!is_over(slot, aloft) && (atomic_load(&d->driver) || wanted_elsewhere(d)))
            futex_wait(&d->turn, t, RECHECK_NS);
        atomic_fetch_sub(&d->waiters, 1);
    }
    /* The last driver may have left work to this caller; hand it to the thread. */
    if (atomic_load(&d->work) && !atomic_load(&d->driver))
        wake_thread(d);
}

void drive_wait(struct engine *e, struct slot *slot)
{
    wait_for(e, slot, 0);
}

int drive_collect(struct engine *e, struct slot *slot, hvd_handle handle, struct err *err)
{
    drive_wait(e, slot);
    int rc = queue_status(slot, err);
    queue_release(e->queue, slot, handle);
    return rc;
}

void drive_wait_aloft(struct engine *e, struct slot *slot, hvd_handle handle)
{
    wait_for(e, slot, handle);
}

/* A small operation on one host: starting it is all that peers need of this rank, and most callers
 * will wait in a moment and finish it. If not, the thread finishes it after its nap. Waking the
 * thread at once would make the two compete for the lock. */
static bool start_small(struct circle *c)
{
    if (c->mesh->hosts > 1 || !batches_small(&c->batches))
        return false;
    batches_progress(c);
    return atomic_load(&c->engine->drive.thread_state) == THREAD_NAPS;
}

void drive_submitted(struct engine *e, int set)
{
    struct drive *d = &e->drive;
    if (!try_lock(d)) {
        wake_driver(d);
        return;
    }
    bool patient = false;
    struct circle *c = sets_circle(e, set); /* NULL: the set was removed, after the operation */
    uint64_t due = circles_next_tick(e);
    /* While the schedule is frozen, no peer has to be told: often nothing more is needed than to
     * note the operation. Otherwise the thread collects several submissions and announces them in
     * one message. */
    if (e->failed || (c && c->neg && negotiate_frozen(c->neg))) {
        turn_note(e);
        patient = c && start_small(c);
        if (c)
            gpu_lane_launch(c);
    }
    bool work = turn_needed(e);
    /* the thread sleeps until `due`, which is too late */
    bool late = d->armed && circles_next_tick(e) < due;
    atomic_store(&d->work, work);
    unlock(d);
    if (queue_has_new(e->queue)) {
        atomic_store(&d->work, 1);
        work = true;
        patient = false;
    }
    if ((work && !patient) || late)
        wake_thread(d);
}

/* ---- the engine thread ---- */

/* Sleeps while callers drive, or until they stop. */
static void nap(struct engine *e)
{
    struct drive *d = &e->drive;
    atomic_store(&d->thread_state, THREAD_NAPS);
    /* Whether the thread has to take care of what was submitted while it held the lock, because no
     * caller does. */
    bool mine = !atomic_load(&d->driver) && !atomic_load(&d->waiters) &&
                !atomic_load(&d->lock_requests) && !atomic_load(&d->closing) &&
                (atomic_load(&d->work) || queue_has_new(e->queue));
    if (!mine && !atomic_load(&d->stop)) {
        int n = wait_fds(d->thread_fd, -1, clock_ns() + NAP_NS);
        if (n == 0 && atomic_load(&d->driver) == DRIVER_SLEEPS) {
            atomic_store(&d->thread_state, THREAD_SLEEPS);
            if (atomic_load(&d->driver) == DRIVER_SLEEPS && !atomic_load(&d->stop))
                wait_fds(d->thread_fd, -1, UINT64_MAX);
        }
    }
    atomic_store(&d->thread_state, THREAD_RUNS);
}

/* Called with the progress lock held; releases it. */
static void sleep_idle(struct engine *e)
{
    struct drive *d = &e->drive;
    circles_sleep_begin(e);
    d->armed = true;
    atomic_store(&d->work, 0);
    atomic_store(&d->thread_state, THREAD_SLEEPS);
    bool moved = turn(e, TURN_CHECK);
    uint64_t due = wake_by(e);
    int fd = circles_fd(e); /* of this epoch's mesh; a change of epoch wakes the thread */
    unlock(d);
    if (!moved && !queue_has_new(e->queue) && !atomic_load(&d->stop) && !atomic_load(&d->waiters))
        wait_fds(d->thread_fd, fd, due);
    atomic_store(&d->thread_state, THREAD_RUNS);
}

/* Drives while no caller waits. Returns true when nothing can be done at once. */
static bool drive_alone(struct engine *e)
{
    struct drive *d = &e->drive;
    struct spin_state spin = {.patient = true};
    while (!wanted_elsewhere(d) && !atomic_load(&d->waiters)) {
        if (turn(e, TURN_FULL))
            spin = (struct spin_state){.patient = true};
        else if (circles_idle(e) || !drive_pause(e, &spin))
            return true;
    }
    return false;
}

static void *thread_main(void *arg)
{
    struct engine *e = arg;
    struct drive *d = &e->drive;
    while (!atomic_load(&d->stop)) {
        if (wanted_elsewhere(d) || !try_lock(d)) {
            nap(e);
            continue;
        }
        disarm(e);
        bool idle = drive_alone(e);
        bool active = d->driven;
        if (active)
            e->last_active_ns = clock_ns();
        d->driven = false;
        if (idle && (!active || turn_needed(e))) {
            sleep_idle(e);
            continue;
        }
        atomic_store(&d->work, turn_needed(e));
        unlock(d);
        nap(e);
    }
    return NULL;
}

/* ---- life ---- */

int drive_init(struct engine *e, struct err *err)
{
    struct drive *d = &e->drive;
    d->driver_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    d->thread_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (d->driver_fd < 0 || d->thread_fd < 0)
        return err_sys(err, errno, "eventfd");
    return 0;
}

int drive_start(struct engine *e, struct err *err)
{
    struct drive *d = &e->drive;
    int rc = thread_start(&d->thread, thread_main, e);
    if (rc != 0)
        return err_sys(err, rc, "the engine's thread");
    d->started = true;
    return 0;
}

void drive_stop(struct engine *e)
{
    struct drive *d = &e->drive;
    if (!d->started)
        return;
    atomic_store(&d->stop, 1);
    signal_fd(d->thread_fd);
    pthread_join(d->thread, NULL);
    d->started = false;
}

void drive_fini(struct engine *e)
{
    struct drive *d = &e->drive;
    if (d->driver_fd >= 0)
        close(d->driver_fd);
    if (d->thread_fd >= 0)
        close(d->thread_fd);
    d->driver_fd = d->thread_fd = -1;
}
