/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline_page: what both sides of a lifeline share: the page, its futex, how their threads start.
 * Only for lifeline.c and lifeline_hold.c, and for tests with a malicious holder.
 */
#ifndef HVD_BASE_LIFELINE_PAGE_H
#define HVD_BASE_LIFELINE_PAGE_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/lifeline.h"

#define LIFELINE_PAGE  4096
#define LIFELINE_MAGIC 0x316566696c647668ULL /* "hvdlife1" */
#define LIFELINE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

/* No thread has this id. */
#define LIFELINE_WORD_RELEASED FUTEX_TID_MASK

struct lifeline_page {
    uint64_t magic;
    uint32_t beat_ms;
    uint32_t pad;
    /* Starts as 0. The holder writes FUTEX_WAITERS and its thread id, later LIFELINE_WORD_RELEASED;
     * the kernel adds FUTEX_OWNER_DIED. The holder sets FUTEX_WAITERS itself because the watcher
     * cannot write. */
    _Atomic uint32_t word;
    _Atomic uint32_t pid;
    _Atomic uint64_t pidns; /* inode of the holder's pid namespace */
    _Atomic uint64_t beats;
};

/* The next state, from the state before (NEW or HELD), the futex value read then (old) and the
 * value read now (word). */
enum lifeline_state lifeline_next(enum lifeline_state before, uint32_t old, uint32_t word);

/* Without FUTEX_PRIVATE_FLAG: the two sides are different processes. */
static inline void lifeline_futex_wait(const _Atomic uint32_t *word, uint32_t value,
                                       const struct timespec *timeout)
{
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout, NULL, 0);
}

static inline void lifeline_futex_wake(const _Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static inline uint64_t lifeline_pid_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* Starts a thread with a small stack and all signals blocked. */
static inline int lifeline_thread_start(pthread_t *ret, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return -rc;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_setstacksize(&attr, 64 << 10);
    rc = pthread_create(ret, &attr, run, arg);
    /* The stack also holds the thread-local variables of all libraries, for which it may be too
     * small. */
    if (rc == EINVAL)
        rc = pthread_create(ret, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return -rc;
}

#endif
