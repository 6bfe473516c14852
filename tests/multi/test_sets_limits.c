/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets and the limits of open files and of memory: a set for which a rank has too few descriptors,
 * or its container too little memory, is refused on all ranks, before any is missing, and nothing
 * is changed. Sets that were made can be used in full, also on several hosts, where connections are
 * made at their first use.
 *
 * timeout: 120
 * takes: 3 s
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/join_rank.h"
#include "tests/harness/open_fds.h"
#include "tests/harness/world.h"

#define MOST  4
#define ROOM  180   /* descriptors that a rank may open in addition to those it has */
#define ROWS  39996 /* for 2, 3 and 4 ranks */
#define LIMIT "this process needs "

static const int all[MOST] = {0, 1, 2, 3};

/* Lets this process open n more descriptors, and never more than that. */
static int limit(int n)
{
    struct rlimit l = {.rlim_cur =
                           (rlim_t)(open_fds() - 3 + n)}; /* without ".", ".." and opendir's */
    l.rlim_max = l.rlim_cur;
    return setrlimit(RLIMIT_NOFILE, &l);
}

static int refused_all(int rc, int victim)
{
    char text[64];
    snprintf(text, sizeof(text), "rank %d: " LIMIT, victim);
    return rc == -EMFILE && strstr(hvd_error(), text) && strstr(hvd_error(), "(ulimit -Hn)")
               ? 0
               : FAIL("%d %s", rc, hvd_error());
}

/* Every connection and every way through shared memory of the set is used. */
static int use(int set, int size)
{
    static float in[ROWS], out[ROWS];
    const int64_t rows = ROWS, few = 1;
    struct hvd_request r = join_request(HVD_ALLTOALL, "exchange", in, NULL, &rows);
    hvd_handle h;
    r.set = set;
    for (int i = 0; i < ROWS; i++)
        in[i] = (float)(i / (ROWS / size));
    if (rank_wait(&r, &h) < 0)
        return FAIL("set %d: %s", set, hvd_error());
    hvd_release(h);
    r = join_request(HVD_ALLREDUCE, "sum", in, out, &rows);
    r.set = set;
    if (join_wait(&r) != 0 || out[ROWS - 1] != (float)(size * (size - 1)))
        return FAIL("set %d: the sum is %g", set, (double)out[ROWS - 1]);
    r.shape = &few;
    r.name = "one";
    return join_wait(&r);
}

/* ---- one rank has too few ------------------------------------------------------------------- */

/* Rank 1 has too few descriptors for a set with it. */
static int one_rank(int rank, int size, void *arg)
{
    int set = 0, other = 77;
    if (hvd_init() < 0 || hvd_set_add(all, size, &set) < 0)
        return FAIL("%s", hvd_error());
    if (rank == 1 && limit(15) < 0)
        return FAIL("setrlimit: %s", strerror(errno));
    int before = open_fds(), rc = 0;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = refused_all(hvd_set_add(all, size, &other), 1);
    if (rc == 0 && (open_fds() != before || other != 77))
        rc = FAIL("%d descriptors before, %d after it; number %d", before, open_fds(), other);
    if (rc == 0 && hvd_set_add((int[]){2, 0}, 2, &other) < 0)
        rc = FAIL("without rank 1: %s", hvd_error());
    struct hvd_stats stats = {.size = sizeof(stats)};
    if (rc == 0 && (hvd_stats(&stats) < 0 || stats.sets != (rank == 1 ? 1 : 2)))
        rc = FAIL("it is in %d sets by its counters", (int)stats.sets);
    if (rc == 0 && other != set + 1)
        rc = FAIL("set %d follows set %d", other, set);
    if (rc == 0)
        rc = use(set, size);
    if (rc == 0 && rank != 1)
        rc = use(other, 2);
    return join_end(rc);
}

static void test_one_rank(void **state)
{
    assert_int_equal(world_run(3, one_rank, NULL), 0);
}

/* ---- until there is no room ----------------------------------------------------------------- */

/* Sets are added until one is refused; only then connections are made. */
static int until_full(int rank, int size, void *arg)
{
    int set = 0, n = 0, rc = 0;
    if (arg)
        setenv("HVD_LOCALITY", rank % 2 ? "a" : "b", 1);
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    rc = use(0, size); /* the world has its connections */
    if (rc == 0 && limit(ROOM + 10 * rank) < 0)
        rc = FAIL("setrlimit: %s", strerror(errno));
    while (rc == 0 && hvd_set_add(all, size, &set) == 0)
        n++;
    if (rc == 0)
        rc = refused_all(-EMFILE, 0);
    if (rc == 0 && n < 3)
        rc = FAIL("there is room for %d sets only", n);
    for (int i = 1; i <= n && rc == 0; i++)
        rc = use(i, size);
    /* A removed set makes room for another one. */
    if (rc == 0 && (hvd_set_remove(1) < 0 || hvd_set_add(all, size, &set) < 0))
        rc = FAIL("%s", hvd_error());
    return join_end(rc ? rc : use(set, size));
}

static void test_one_host(void **state)
{
    assert_int_equal(world_run(MOST, until_full, NULL), 0);
}

static void test_hosts(void **state)
{
    assert_int_equal(world_run(2, until_full, &(int){1}), 0);
    assert_int_equal(world_run(MOST, until_full, &(int){1}), 0);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return -errno;
    bool bad = fputs(text, f) < 0;
    return fclose(f) || bad ? -EIO : 0;
}

/* This process sees a container with a memory limit, of which so many bytes are left. */
static int limit_memory(long left)
{
    char text[32];
    snprintf(text, sizeof(text), "%ld\n", left);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/sys/fs/cgroup", "tmpfs", 0, NULL) < 0 ||
        mkdir("/sys/fs/cgroup/memory", 0755) < 0)
        return -errno;
    int rc = write_file("/sys/fs/cgroup/memory.max", text);
    rc = rc < 0 ? rc : write_file("/sys/fs/cgroup/memory.current", "0\n");
    rc = rc < 0 ? rc : write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", text);
    return rc < 0 ? rc : write_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
}

static int refused_memory(int rc)
{
    static const char text[] = "rank 1: shared memory of this set's ";
    return rc == -ENOMEM && strstr(hvd_error(), text) && strstr(hvd_error(), "memory limit of")
               ? 0
               : FAIL("%d %s", rc, hvd_error());
}

/* There is room for the memory of one set of three ranks. A set that was used has its memory. */
static int little_memory(int rank, int size, void *arg)
{
    int set = 0, second = 0, other = 77;
    if (rank == 1 && limit_memory(4 << 20) < 0)
        return FAIL("cannot limit the memory");
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    int rc = use(0, size);
    if (rc == 0 && hvd_set_add(all, size, &set) < 0)
        rc = FAIL("the first one: %s", hvd_error());
    if (rc == 0)
        rc = refused_memory(hvd_set_add(all, size, &other));
    if (rc == 0 && rank < 2)
        rc = refused_memory(hvd_set_form("pair", all, 2, &other));
    if (rc == 0 && other != 77)
        rc = FAIL("there is set %d", other);
    if (rc == 0 && hvd_set_add((int[]){2, 0}, 2, &other) < 0)
        rc = FAIL("without rank 1: %s", hvd_error());
    rc = rc ? rc : use(set, size);
    if (rc == 0 && hvd_set_add(all, size, &second) < 0)
        rc = FAIL("after the first one was used: %s", hvd_error());
    return join_end(rc ? rc : use(second, size));
}

/* A rank that is alone on its host needs no shared memory. */
static int no_memory_needed(int rank, int size, void *arg)
{
    int set = 0;
    setenv("HVD_LOCALITY", rank == 1 ? "a" : "b", 1);
    if (rank == 1 && limit_memory(0) < 0)
        return FAIL("cannot limit the memory");
    if (hvd_init() < 0 || hvd_set_add(all, size, &set) < 0)
        return FAIL("%s", hvd_error());
    return join_end(use(set, size));
}

static void test_memory(void **state)
{
    pid_t child = fork();
    int status = 0;
    if (child == 0)
        _exit(limit_memory(0) < 0);
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        printf("SKIP: multi/sets_limits/memory: root: no mount namespace of our own here\n");
        skip();
    }
    assert_int_equal(world_run(3, little_memory, NULL), 0);
    assert_int_equal(world_run(3, no_memory_needed, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests_name("multi/sets_limits", tests, NULL, NULL);
}
