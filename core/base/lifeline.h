/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline: tells a process at once when another process of its host dies, and how long that
 * process has been silent.
 *
 * The two processes share one page of memory with a futex in it. A thread of the *holder* puts the
 * futex on its robust list (set_robust_list(2), as robust mutexes do): when the holder dies or
 * calls exec, the kernel marks the futex and wakes the *watcher*. A socket's end or a pidfd would
 * report the death later, only when the memory is freed (0.1 s a gigabyte). The same thread counts
 * beats in the page.
 *
 * The watcher maps the page read-only, takes no lock and follows no pointer in it: the worst that a
 * malicious holder can write is that it is dead. A robust mutex of libc is not used, because
 * locking a shared one puts pointers of the other process into this process's list. Different pid
 * namespaces do no harm: the futex is compared only with its own earlier value.
 *
 * Where the kernel writes a core dump, the watcher learns of the death only after the dump.
 *
 * The agent watches its ranks, with one page and one small thread for each (agent/lifelines). The
 * engine of a rank is the holder (CTL_LIFELINE).
 */
#ifndef HVD_BASE_LIFELINE_H
#define HVD_BASE_LIFELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"

#define LIFELINE_BEAT_MS     100 /* default of HVD_HEARTBEAT_MS */
#define LIFELINE_BEAT_MS_MIN 10
#define LIFELINE_BEAT_MS_MAX 10000

enum lifeline_state {
    LIFELINE_NEW,      /* no holder yet */
    LIFELINE_HELD,     /* the holder lives */
    LIFELINE_RELEASED, /* the holder has released it: its exit is no longer reported */
    LIFELINE_DEAD,     /* the holder is dead, or has called exec */
    LIFELINE_BROKEN,   /* the page has impossible contents and reports nothing any more */
};

/* Asks the scheduler to run the calling thread soon after a wake, with short slices, where the
 * kernel supports it (Linux 6.12): a thread that reports a death should not queue behind threads
 * that compute. Called by the threads of a lifeline and by threads that wait for its events.
 * Children of fork(2) do not inherit it. */
void lifeline_raise_priority(void);

/* ---- the watcher ---------------------------------------------------------------------------- */

struct lifeline;

/* Makes a page and the thread that waits for it. The caller sends *ret_fd to the holder and closes
 * it. The holder counts a beat every beat_ms. */
int lifeline_create(struct lifeline **ret, int beat_ms, int *ret_fd, struct err *err);

/* Ends the thread, within milliseconds whatever the holder does. NULL is fine. */
void lifeline_destroy(struct lifeline *l);

/* A descriptor, owned by the lifeline, that becomes readable when the state is RELEASED, DEAD or
 * BROKEN. It stays readable: stop polling it then. */
int lifeline_event_fd(const struct lifeline *l);

/* From any thread. A state after HELD is final. */
enum lifeline_state lifeline_state(const struct lifeline *l);
/* Nanoseconds since a new beat of the holder was last seen; 0 when the state is not HELD. Call it
 * every beat_ms, from one thread; now is clock_ns(). After a pause of more than three beats (at
 * least 300 ms) between calls, the measurement starts anew: then the watcher itself was not
 * running, perhaps because the host was suspended, and the silence says nothing about the holder.
 */
uint64_t lifeline_silence(struct lifeline *l, uint64_t now);

/* The holder's process id as in this process's /proc, as the holder wrote it. 0: not written yet,
 * or the holder has another pid namespace. */
pid_t lifeline_pid(const struct lifeline *l);

/* ---- the holder ----------------------------------------------------------------------------- */

/* Holds the lifeline until lifeline_release() or death, by a thread "hvd-lifeline" that blocks all
 * signals. One per process: a lifeline held before is released first. The caller keeps fd and may
 * close it. A child of fork(2) does not hold the lifeline or have the page, and its death is not
 * reported. -EPROTO: fd is not from lifeline_create(). */
int lifeline_hold(int fd, struct err *err);

/* Does nothing when nothing is held. */
void lifeline_release(void);
bool lifeline_is_held(void);

#endif
