/* SPDX-License-Identifier: Apache-2.0
 *
 * lifeline_page: what a watcher reports for a page without a holder, a file that is no lifeline
 * page, and a page in which a process writes random values.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/lifeline_page.h"
#include "tests/harness/lifeline_holder.h"
#include "tests/harness/open_fds.h"

static void test_never_held(void **state)
{
    struct lifeline *l;
    int fd, before = open_fds();
    assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
    assert_false(lifeline_told(l, 50));
    assert_int_equal(lifeline_state(l), LIFELINE_NEW);
    assert_int_equal(lifeline_pid(l), 0);
    assert_int_equal(lifeline_silence(l, clock_ns()), 0);
    lifeline_destroy(l);
    close(fd);
    lifeline_destroy(NULL);
    assert_int_equal(open_fds(), before);
}

static void test_arguments(void **state)
{
    struct lifeline *l = NULL;
    struct err err;
    int fd = -1, pipes[2];
    assert_int_equal(lifeline_create(&l, 9, &fd, &err), -EINVAL);
    assert_int_equal(lifeline_create(&l, 10001, &fd, &err), -EINVAL);
    assert_non_null(strstr(err.msg, "10000"));
    assert_null(l);
    assert_int_equal(fd, -1);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(lifeline_hold(pipes[0], &err), -EPROTO);
    assert_int_equal(lifeline_hold(-1, &err), -EPROTO);
    close(pipes[0]);
    close(pipes[1]);
    fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, LIFELINE_PAGE), 0);
    assert_int_equal(lifeline_hold(fd, &err), -EPROTO); /* not sealed */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, LIFELINE_SEALS), 0);
    assert_int_equal(lifeline_hold(fd, &err), -EPROTO); /* not initialized */
    assert_false(lifeline_is_held());
    lifeline_release();
    close(fd);
}

/* ---- a holder that writes any values --------------------------------------------------------- */

static struct lifeline_page *map_of(int fd)
{
    void *p = mmap(NULL, LIFELINE_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void write_word(struct lifeline_page *page, uint32_t word)
{
    atomic_store(&page->word, word);
    lifeline_futex_wake(&page->word);
}

static void test_words(void **state)
{
    const uint32_t tid = FUTEX_WAITERS | 4711;
    const struct {
        uint32_t first, second;
        enum lifeline_state state;
    } rows[] = {
        {tid, FUTEX_WAITERS | FUTEX_OWNER_DIED, LIFELINE_DEAD},
        {tid, FUTEX_OWNER_DIED, LIFELINE_DEAD},
        {tid, LIFELINE_WORD_RELEASED, LIFELINE_RELEASED},
        {tid, 0, LIFELINE_BROKEN},
        {tid, tid + 1, LIFELINE_BROKEN},
        {tid, tid & ~FUTEX_WAITERS, LIFELINE_BROKEN},
        {0, 4711, LIFELINE_BROKEN}, /* without FUTEX_WAITERS the kernel wakes no thread when the
                                       owner dies */
        {0, FUTEX_WAITERS, LIFELINE_BROKEN},
        {0, LIFELINE_WORD_RELEASED, LIFELINE_RELEASED},
        {0, FUTEX_WAITERS | FUTEX_OWNER_DIED, LIFELINE_DEAD},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct lifeline *l;
        int fd;
        assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
        struct lifeline_page *page = map_of(fd);
        write_word(page, rows[i].first);
        uint64_t deadline = deadline_in_ms(SOON_MS);
        /* The watcher must see the first word: its thread may get no processor for a while. */
        while (rows[i].first && lifeline_state(l) != LIFELINE_HELD && !deadline_passed(deadline))
            usleep(100);
        assert_false(lifeline_told(l, 20));
        write_word(page, rows[i].second);
        assert_true(lifeline_told(l, SOON_MS));
        assert_int_equal(lifeline_state(l), rows[i].state);
        munmap(page, LIFELINE_PAGE);
        close(fd);
        lifeline_destroy(l);
    }
}

static void *scribble(void *arg)
{
    struct lifeline_page *page = arg;
    unsigned seed = 1;
    while (!atomic_load(&page->pidns)) {
        atomic_store(&page->beats, (uint64_t)rand_r(&seed) << 33);
        atomic_store(&page->pid, (uint32_t)rand_r(&seed) * 2);
        write_word(page,
                   (uint32_t)rand_r(&seed) % 8 ? FUTEX_WAITERS | 4711 : (uint32_t)rand_r(&seed));
    }
    return NULL;
}

/* A process writes random values: the watcher's state stays valid, and lifeline_destroy()
 * returns. */
static void test_garbage(void **state)
{
    for (int i = 0; i < 50; i++) {
        struct lifeline *l;
        pthread_t thread;
        int fd;
        assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
        struct lifeline_page *page = map_of(fd);
        pthread_create(&thread, NULL, scribble, page);
        for (int n = 0; n < 20; n++) {
            lifeline_silence(l, clock_ns());
            assert_true(lifeline_pid(l) >= 0);
            assert_true(lifeline_state(l) <= LIFELINE_BROKEN);
        }
        lifeline_destroy(l);
        atomic_store(&page->pidns, 1);
        pthread_join(thread, NULL);
        munmap(page, LIFELINE_PAGE);
        close(fd);
    }
}

/* A hole is punched into the page on which a watcher waits: the page reads as 0, and the file
 * cannot shrink. */
static void test_hole(void **state)
{
    struct lifeline *l;
    int fd;
    assert_int_equal(lifeline_create(&l, BEAT_MS, &fd, NULL), 0);
    struct lifeline_page *page = map_of(fd);
    write_word(page, FUTEX_WAITERS | 4711);
    assert_false(lifeline_told(l, 20));
    assert_true(ftruncate(fd, 0) < 0);
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, LIFELINE_PAGE),
                     0);
    lifeline_silence(l, clock_ns());
    lifeline_destroy(l);
    munmap(page, LIFELINE_PAGE);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_held), cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_words),      cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_hole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
