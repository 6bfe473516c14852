/* SPDX-License-Identifier: Apache-2.0
 *
 * drive: the progress lock and its holder, the driver.
 *
 * A caller that waits takes the lock and drives until its operation is done. Other callers sleep on
 * a futex. The engine thread drives when no caller waits. The thread is in one of three states:
 *
 * - runs: it drives, or tries to.
 * - naps: it sleeps for a few milliseconds while callers take and release the lock in quick
 *   succession, so that no call has to pay for waking it.
 * - sleeps: until it is woken. Either a caller drives and sleeps, and wakes the thread when it
 *   leaves. Or this rank is idle: the thread sleeps in poll(2) on the mesh, which marks this rank
 *   as asleep.
 */
#ifndef HVD_ENGINE_DRIVE_H
#define HVD_ENGINE_DRIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/coll/coll.h"
#include "core/engine/queue.h"

struct engine;
struct slot;

/* How long a driver has found nothing to do. It spins first (only where every rank has a processor
 * of its own), then yields a few times, then has to sleep. Zero-initialized. */
struct spin_state {
    uint64_t since;
    int yields;
    bool patient; /* no caller waits: does not spin if nothing has to follow at once (COLL_NAPS) */
};

enum driver { DRIVER_NONE, DRIVER_RUNS, DRIVER_SLEEPS };
enum drive_thread { THREAD_RUNS, THREAD_NAPS, THREAD_SLEEPS };

struct drive {
    /* enum driver, the progress lock: nonzero while a driver has it. DRIVER_SLEEPS: the driver is
     * in poll(2), or about to. */
    _Alignas(64) _Atomic int driver;
    _Atomic int waiters;       /* callers that sleep on the futex `turn`, or are about to */
    _Atomic int lock_requests; /* callers that ask the driver to release the lock for a moment */
    _Atomic uint32_t turn;     /* futex */
    _Atomic int work;          /* there is work: a caller or the thread has to drive */
    _Atomic int thread_state;  /* enum drive_thread */
    /* callers that have begun to wait or poll without the lock since the driver last looked */
    _Atomic int priority_requests;
    _Atomic int closing;      /* hvd_shutdown() has begun: callers may not drive any more */
    _Atomic int stop;         /* asks the thread to end */
    int driver_fd, thread_fd; /* eventfds that wake the driver and the thread */
    bool armed; /* (lock) the mesh marks this rank as asleep because the thread is idle */
    /* (lock) turns of a caller that has given the lock up before its operation was done: the next
     * one goes on counting, so that frequent requests for the lock cannot put full turns off for
     * ever.
     */
    unsigned turns;
    bool driven; /* (lock) a caller has taken the lock to drive since the thread last had it */
    bool started;
    pthread_t thread;
};

int drive_init(struct engine *e, struct err *err);
int drive_start(struct engine *e, struct err *err);

/* Ends the thread. */
void drive_stop(struct engine *e);
void drive_fini(struct engine *e);

/* Takes the lock for a moment; the driver releases it soon. */
void drive_lock(struct engine *e);

/* Like drive_lock(), but returns false without the lock when *busy is or becomes nonzero: the
 * driver may then hold the lock for long. */
bool drive_lock_unless(struct engine *e, const _Atomic int *busy);

/* Takes the lock if it is free. On true the caller is the driver. */
bool drive_try(struct engine *e);

/* Releases the progress lock. Wakes the engine thread if it sleeps, or if there is work and no
 * caller waits for the lock. If another thread has submitted meanwhile and the lock is free, takes
 * it again for one more turn. */
void drive_leave(struct engine *e);

/* (lock) Drives until the slot is done or another thread wants the lock. */
void drive_until(struct engine *e, struct slot *slot);

/* Returns when the slot is done. */
void drive_wait(struct engine *e, struct slot *slot);

/* The same for an operation of which only this thread knows; releases it. 0, or why it failed. */
int drive_collect(struct engine *e, struct slot *slot, hvd_handle handle, struct err *err);

/* Returns when the slot is done, when a stream can wait for it (slot.aloft), or when another thread
 * has released it. */
void drive_wait_aloft(struct engine *e, struct slot *slot, hvd_handle handle);

/* Called after a submission for a set (0: the world): has a driver look at it. */
void drive_submitted(struct engine *e, int set);

/* Tells the driver that a caller waits for this slot, or polls it, without being the driver. */
void drive_prioritize(struct engine *e, struct slot *slot, enum priority priority);

/* Whether the driver may sleep until a descriptor wakes it, or has to poll. */
enum coll_wait drive_wait_kind(struct engine *e);

/* Spins or yields once. Returns false when the driver should sleep instead. */
bool drive_pause(struct engine *e, struct spin_state *p);

/* (lock) Called after slots were finished: wakes the callers that sleep. */
void drive_wake_waiters(struct engine *e);

#endif
