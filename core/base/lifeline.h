/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline: the death of a process of this host is told at once, and its silence can be seen.
 *
 * One page of shared memory with a futex in it. A thread of the *holder* puts the futex on its
 * robust list (set_robust_list(2), what robust mutexes are made of): when the holder dies or calls
 * exec, the kernel marks it and wakes the *watcher*. That is long before the end of a socket or of
 * a pidfd, which come when the memory is gone (0.1 s a gigabyte). The same thread counts beats in
 * the page.
 *
 * The watcher maps the page for reading only, takes no lock and follows no pointer in it: the worst
 * that a bad holder can write is that it is dead. No libc's mutex is used, because taking a robust
 * mutex of a stranger puts his pointers into one's own list. For the same reason it does not matter
 * if the two are in different pid namespaces: the futex is only ever compared with its holder.
 *
 * A core dump comes before all this: where cores are written the news waits for them.
 *
 * The agent watches its ranks, one page and one small thread each (agent/lifelines); the engine
 * holds (CTL_LIFELINE).
 */
#ifndef HVD_BASE_LIFELINE_H
#define HVD_BASE_LIFELINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/err.h"

#define LIFELINE_BEAT_MS     100 /* HVD_HEARTBEAT_MS */
#define LIFELINE_BEAT_MS_MIN 10
#define LIFELINE_BEAT_MS_MAX 10000

enum lifeline_state {
    LIFELINE_NEW,      /* nobody holds it yet */
    LIFELINE_HELD,     /* its holder lives */
    LIFELINE_RELEASED, /* the holder has let go: its end is none of ours */
    LIFELINE_DEAD,     /* the holder is dead, or has become another program */
    LIFELINE_BROKEN,   /* what is written there makes no sense: it tells nothing any more */
};

/* The calling thread gets shorter turns of the processor, and sooner, where the kernel knows that
 * (Linux 6.12): who is woken to tell a death should not stand behind those who compute. The threads
 * of a lifeline call it; so should who listens to them. Its children of fork(2) do not inherit it.
 */
void lifeline_hurry(void);

/* ---- the watcher ---------------------------------------------------------------------------- */

struct lifeline;

/* A page and the thread that waits for it. *ret_fd is what the holder gets: the caller's to send
 * and to close. beat_ms stands in the page: how often the holder is to count. */
int lifeline_create(struct lifeline **ret, int beat_ms, int *ret_fd, struct err *err);

/* Ends the thread, in milliseconds in every state: it is in nobody's hand but ours. NULL is fine.
 */
void lifeline_destroy(struct lifeline *l);

/* A descriptor of the lifeline's that becomes readable when the state is RELEASED, DEAD or BROKEN,
 * and stays so: stop listening then. */
int lifeline_event_fd(const struct lifeline *l);

/* From any thread. What comes after HELD does not change any more. */
enum lifeline_state lifeline_state(const struct lifeline *l);
/* Nanoseconds since the holder was last seen to count a beat, 0 where it does not hold (any more).
 * To be asked every beat_ms, by one thread; now is clock_ns(). Whoever has not asked for three
 * beats (at least 300 ms) was not running himself and starts anew: a host that was asleep is no
 * evidence against anybody. */
uint64_t lifeline_silence(struct lifeline *l, uint64_t now);

/* The holder's process id as /proc here knows it; 0: none yet, or of another pid namespace. The
 * holder's own word. */
pid_t lifeline_pid(const struct lifeline *l);

/* ---- the holder ----------------------------------------------------------------------------- */

/* From now until lifeline_release() or death, by a thread of its own that blocks all signals,
 * "hvd-lifeline". One a process. fd stays the caller's, and can be closed: nothing of it is kept.
 * Holding already: the former one is released first. A child of fork(2) holds nothing, does not
 * have the page, and says nothing by its end. -EPROTO: not what lifeline_create() makes. */
int lifeline_hold(int fd, struct err *err);

/* Nothing when nothing is held. */
void lifeline_release(void);
bool lifeline_is_held(void);

#endif
