/* SPDX-License-Identifier: Apache-2.0
 *
 * drive: the progress lock, and who holds it.
 *
 * A caller that waits takes the lock and drives until its operation is done; other callers sleep
 * on a futex. The engine thread drives when nobody waits. Its states: it runs; it watches (sleeps a
 * few milliseconds beside callers that come and go quickly: no wake-up has to be paid on each
 * call); it is parked (a caller drives and sleeps: nothing for the thread to do until that one
 * leaves); or it lies deep, in poll(2) on the mesh with this rank marked asleep, where an idle rank
 * spends its time without a timer.
 */
#ifndef HVD_ENGINE_DRIVE_H
#define HVD_ENGINE_DRIVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/err.h"

struct engine;
struct slot;

/* How long a driver has found nothing to do: first it spins, where every rank has a processor of
 * its own, then it lets others run a few times, then it is to sleep. Begins as zeros. */
struct patience {
    uint64_t since;
    int yields;
};

enum drive_thread { THREAD_RUNS, THREAD_WATCHES, THREAD_PARKED, THREAD_DEEP };

struct drive {
    _Alignas(64) _Atomic int locked;
    _Atomic int waiters;         /* callers that sleep on turn, or are about to */
    _Atomic int knocks;          /* callers that want the lock for a moment */
    _Atomic uint32_t turn;       /* futex */
    _Atomic int asleep;          /* the driver is in poll(2), or about to */
    _Atomic int slow;            /* the driver has slept since it took the lock */
    _Atomic int work;            /* somebody has to drive */
    _Atomic int thread_state;    /* enum drive_thread */
    _Atomic uint64_t stints;     /* how often callers have driven */
    _Atomic uint64_t urges;      /* callers that began to wait or poll without the lock */
    _Atomic uint64_t thread_due; /* when the thread wakes up by itself */
    _Atomic int closing;         /* callers may not drive any more */
    _Atomic int stop;            /* the thread ends */
    int driver_fd, thread_fd;    /* eventfds that wake them */
    bool armed; /* (lock) the mesh holds this rank for asleep, the thread is deep */
    bool started;
    pthread_t thread;
};

int drive_init(struct engine *e, struct err *err);
int drive_start(struct engine *e, struct err *err);

/* Ends the thread. */
void drive_stop(struct engine *e);
void drive_fini(struct engine *e);

/* The lock for a moment: whoever drives makes way. */
void drive_lock(struct engine *e);

/* The same, but false where *busy says, before or meanwhile, that it may take long. */
bool drive_lock_unless(struct engine *e, const _Atomic int *busy);

/* Takes the lock if it is free; the caller is the driver then. */
bool drive_try(struct engine *e);

/* Leaves the lock, and sees to it that somebody drives if there is work. */
void drive_leave(struct engine *e);

/* (lock) Drives until the slot is done, or the lock is wanted by somebody else. */
void drive_until(struct engine *e, struct slot *slot);

/* Returns when the slot is done. */
void drive_wait(struct engine *e, struct slot *slot);

/* After something was submitted: makes somebody look at it. */
void drive_submitted(struct engine *e);

/* Somebody waits for a slot, or polls it, who does not drive. */
void drive_urge(struct engine *e, struct slot *slot);

/* A moment's pause; false when it is time to sleep. */
bool drive_pause(const struct engine *e, struct patience *p);

/* (lock) After slots were finished: wakes who sleeps for them. */
void drive_wake_waiters(struct engine *e);

#endif
