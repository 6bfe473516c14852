/* SPDX-License-Identifier: Apache-2.0
 *
 * world: when the parent of a test's ranks ends in order, is killed, or is killed with its process
 * group as by timeout(1), nothing of it stays on the machine. The parent here is a child of this
 * test, which adopts the processes that are left.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/harness/world.h"

struct shared {
    _Atomic int ready; /* ranks that have started */
    char key_file[128];
};

/* Runs until it is killed. Rank 0 writes the path of the world's key to key_file. */
static int pause_for_ever(int rank, int size, void *arg)
{
    struct shared *s = arg;
    if (rank == 0)
        snprintf(s->key_file, sizeof(s->key_file), "%s", getenv("HVD_KEY_FILE"));
    atomic_fetch_add(&s->ready, 1);
    while (pause() < 0)
        ;
    return 1;
}

static int say_key(int rank, int size, void *arg)
{
    struct shared *s = arg;
    if (rank == 0)
        snprintf(s->key_file, sizeof(s->key_file), "%s", getenv("HVD_KEY_FILE"));
    return access(getenv("HVD_KEY_FILE"), R_OK) == 0 ? 0 : 1;
}

static struct shared *shared_new(void)
{
    struct shared *s = world_shared(sizeof(*s));
    assert_non_null(s);
    return s;
}

static void assert_dir_gone(const char *key_file)
{
    char dir[128];
    snprintf(dir, sizeof(dir), "%s", key_file);
    char *slash = strrchr(dir, '/');
    assert_non_null(slash);
    *slash = 0;
    assert_int_equal(access(dir, F_OK), -1);
    assert_int_equal(errno, ENOENT);
}

/* Counts the network namespaces of the worlds that process pid made. */
static int namespaces_of(pid_t pid)
{
    char prefix[32];
    int n = 0, len = snprintf(prefix, sizeof(prefix), "hvdw%d-", (int)pid);
    DIR *d = opendir("/run/netns");
    if (!d)
        return 0;
    for (struct dirent *e; (e = readdir(d));)
        n += strncmp(e->d_name, prefix, (size_t)len) == 0;
    closedir(d);
    return n;
}

/* All descendants become children of this process, and they end. */
static void assert_all_end(void)
{
    struct timespec nap = {.tv_nsec = 1000000};
    pid_t pid;
    for (uint64_t end = deadline_in_ms(20000); (pid = waitpid(-1, NULL, WNOHANG)) >= 0;) {
        assert_false(deadline_passed(end));
        if (pid == 0)
            nanosleep(&nap, NULL);
    }
    assert_int_equal(errno, ECHILD);
}

static void killed(int hosts, int sig, bool group)
{
    struct shared *s = shared_new();
    struct timespec nap = {.tv_nsec = 1000000};
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct world_options o = {.size = 2, .hosts = hosts};
        setpgid(0, 0);
        _exit(world_run_options(&o, pause_for_ever, s));
    }
    for (uint64_t end = deadline_in_ms(20000); atomic_load(&s->ready) < 2;) {
        assert_false(deadline_passed(end));
        nanosleep(&nap, NULL);
    }
    assert_int_equal(access(s->key_file, R_OK), 0);
    assert_int_equal(namespaces_of(pid), hosts > 1 ? hosts + 1 : 0);
    assert_int_equal(kill(group ? -pid : pid, sig), 0);
    assert_all_end();
    assert_dir_gone(s->key_file);
    assert_int_equal(namespaces_of(pid), 0);
}

static void test_orderly(void **state)
{
    struct shared *s = shared_new();
    assert_int_equal(world_run(2, say_key, s), 0);
    assert_dir_gone(s->key_file);
    assert_all_end();
}

static void test_two_at_once(void **state)
{
    struct shared *one = shared_new(), *two = shared_new();
    struct world *a = NULL, *b = NULL;
    struct world_options o = {.size = 2};
    assert_int_equal(world_start(&o, pause_for_ever, one, &a), 0);
    assert_int_equal(world_start(&o, say_key, two, &b), 0);
    /* World a starts first and ends first: its sweeper must not wait for world b. */
    assert_int_equal(world_kill(a, 0, SIGKILL), 0);
    assert_int_equal(world_kill(a, 1, SIGKILL), 0);
    assert_int_equal(world_wait(a, NULL), 2);
    assert_int_equal(world_wait(b, NULL), 0);
    assert_dir_gone(two->key_file);
    assert_all_end();
}

static void test_killed(void **state)
{
    killed(1, SIGKILL, false);
}

static void test_group_ended(void **state)
{
    killed(1, SIGTERM, true);
}

static void test_killed_with_hosts(void **state)
{
    if (!world_can_netns("harness/world/hosts"))
        skip();
    killed(3, SIGKILL, false);
    killed(3, SIGTERM, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orderly),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_group_ended),
        cmocka_unit_test(test_killed_with_hosts),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
