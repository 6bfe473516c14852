/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline_hold: the holder's side of a lifeline, in a rank. See lifeline.h.
 */
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/lifeline.h"
#include "core/base/lifeline_page.h"

/* The lifeline that this process holds. */
static struct holder {
    _Atomic pid_t pid; /* the process that holds; 0: none. In a child of fork(2) this copy is stale:
                          getpid() differs. */
    struct lifeline_page *page;
    uint32_t beat_ms;
    pthread_t thread;
    _Atomic uint32_t stop;
    _Atomic uint32_t begun; /* 1: held; 2: failed */
    int failure;
} held;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void count_beats(struct holder *h)
{
    const struct timespec beat = {h->beat_ms / 1000, (long)(h->beat_ms % 1000) * 1000000L};
    while (!atomic_load(&h->stop)) {
        atomic_fetch_add(&h->page->beats, 1);
        lifeline_futex_wait(&h->stop, 0, &beat);
    }
}

static void signal_started(struct holder *h, uint32_t how)
{
    atomic_store(&h->begun, how);
    lifeline_futex_wake(&h->begun);
}

/* Replaces the robust list that libc gave this thread, which locks no robust mutex. The list node
 * is on this stack and only the futex is in the page: the kernel adds futex_offset to the node's
 * address. */
static void *hold(void *arg)
{
    struct holder *h = arg;
    struct robust_list_head head = {0};
    struct robust_list node = {.next = &head.list};
    head.list.next = &node;
    head.futex_offset = (long)((intptr_t)&h->page->word - (intptr_t)&node);
    pthread_setname_np(pthread_self(), "hvd-lifeline");
    lifeline_raise_priority();
    if (syscall(SYS_set_robust_list, &head, sizeof(head)) < 0) {
        h->failure = errno;
        signal_started(h, 2);
        return NULL;
    }
    atomic_store(&h->page->word, FUTEX_WAITERS | (uint32_t)syscall(SYS_gettid));
    lifeline_futex_wake(&h->page->word);
    signal_started(h, 1);
    count_beats(h);
    atomic_store(&h->page->word, LIFELINE_WORD_RELEASED);
    lifeline_futex_wake(&h->page->word);
    head.list.next = &head.list;
    return NULL;
}

static int map_page(int fd, struct lifeline_page **ret, struct err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &st) < 0 || st.st_size != LIFELINE_PAGE || seals < 0 ||
        (seals & LIFELINE_SEALS) != LIFELINE_SEALS)
        return err_set(err, EPROTO, "lifeline: not a sealed memfd of one page");
    struct lifeline_page *page =
        mmap(NULL, LIFELINE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return err_sys(err, errno, "lifeline: mmap");
    int rc = 0;
    if (page->magic != LIFELINE_MAGIC || page->beat_ms < LIFELINE_BEAT_MS_MIN ||
        page->beat_ms > LIFELINE_BEAT_MS_MAX || atomic_load(&page->word) != 0)
        rc = err_set(err, EPROTO, "lifeline: the page is malformed or has a holder already");
    else if (madvise(page, LIFELINE_PAGE, MADV_DONTFORK) < 0)
        rc = err_sys(err, errno, "lifeline: madvise");
    if (rc < 0)
        munmap(page, LIFELINE_PAGE);
    else
        *ret = page;
    return rc;
}

static bool is_mine(void)
{
    return atomic_load(&held.pid) == getpid();
}

/* Called with the lock held. */
static void release(void)
{
    if (!is_mine())
        return;
    atomic_store(&held.stop, 1);
    lifeline_futex_wake(&held.stop);
    pthread_join(held.thread, NULL);
    munmap(held.page, LIFELINE_PAGE);
    atomic_store(&held.pid, 0);
}

static int begin(struct lifeline_page *page, struct err *err)
{
    pid_t pid = getpid();
    held.page = page;
    held.beat_ms = page->beat_ms;
    atomic_store(&held.stop, 0);
    atomic_store(&held.begun, 0);
    atomic_store(&page->pid, (uint32_t)pid);
    atomic_store(&page->pidns, lifeline_pid_namespace());
    int rc = lifeline_thread_start(&held.thread, hold, &held);
    if (rc < 0) {
        munmap(page, LIFELINE_PAGE);
        return err_sys(err, -rc, "lifeline: thread");
    }
    atomic_store(&held.pid, pid);
    while (atomic_load(&held.begun) == 0)
        lifeline_futex_wait(&held.begun, 0, NULL);
    if (atomic_load(&held.begun) == 2) {
        release();
        return err_sys(err, held.failure, "lifeline: set_robust_list");
    }
    return 0;
}

int lifeline_hold(int fd, struct err *err)
{
    struct lifeline_page *page = NULL;
    int rc = map_page(fd, &page, err);
    if (!page)
        return rc;
    pthread_mutex_lock(&lock);
    release();
    rc = begin(page, err);
    pthread_mutex_unlock(&lock);
    return rc;
}

void lifeline_release(void)
{
    if (!is_mine()) /* in a child of fork a thread that does not exist there may hold the lock */
        return;
    pthread_mutex_lock(&lock);
    release();
    pthread_mutex_unlock(&lock);
}

bool lifeline_is_held(void)
{
    return is_mine();
}
