/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh_create: the N-th allocation fails, for every N: the call returns an error or succeeds, and
 * leaves no descriptor open. (The ASan build, which has its own allocator, checks for leaks of
 * memory; it skips this test.)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/harness/mesh_ranks.h"
#include "tests/harness/open_fds.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_HOOKS 0
#elif defined(__has_feature)
#define HAVE_HOOKS (!__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer))
#else
#define HAVE_HOOKS 1
#endif

enum { ROUNDS = 45 };

/* Counts down while it is above 0; the allocation that makes it 0 fails. */
static int countdown;

#if HAVE_HOOKS
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);

static bool fails(void)
{
    return countdown > 0 && --countdown == 0;
}

void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}
#endif

static int round_no, fds_before;

static void arm(int rank)
{
    setenv("HVD_LOG_LEVEL", "error", 1);
    countdown = ++round_no;
}

static void before(int rank)
{
    fds_before = open_fds();
}

static int check(int code)
{
    countdown = 0;
    if (open_fds() != fds_before) {
        printf("round %d: %d descriptors, were %d\n", round_no, open_fds(), fds_before);
        return 1;
    }
    return code;
}

static int well(struct mesh *mesh, void *arg)
{
    countdown = 0;
    mesh_destroy(mesh);
    return check(0);
}

static int badly(int rank, int rc, const struct err *err)
{
    countdown = 0;
    if (rc != -ENOMEM && rc != -ETIMEDOUT && rc != -ECONNRESET) {
        printf("round %d: rank %d: %d %s\n", round_no, rank, rc, err_text(err));
        return 2;
    }
    return check(0);
}

static void run(int n, const char *hosts)
{
    if (!HAVE_HOOKS) {
        print_message("SKIP: transport/mesh_create: allocator: the sanitizer has its own\n");
        skip();
    }
    struct mesh_ranks m = {.n = n,
                           .hosts = hosts,
                           .rounds = ROUNDS,
                           .timeout_ms = 300,
                           .before = before,
                           .met = arm,
                           .body = well,
                           .no_mesh = badly};
    mesh_ranks_run(&m);
    for (int r = 0; r < n; r++)
        assert_int_equal(m.status[r], 0);
}

static void test_alone(void **state)
{
    run(1, NULL);
}

static void test_one_host(void **state)
{
    run(2, NULL);
}

static void test_two_hosts(void **state)
{
    run(2, "ab");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_two_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
