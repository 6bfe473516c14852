/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_real: the real libnccl.so.2 of the pinned wheel (tests/wheels.sh) loads without a driver,
 * has every function that hvd knows, and reports its version; an id can be made. A communicator
 * without a GPU fails soon, with a message of one line. With a GPU a world of one rank works and
 * leaves nothing behind.
 *
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/backend/nccl_api.h"
#include "core/backend/nccl_comm.h"
#include "core/base/clock.h"
#include "tests/harness/rank.h"

#define WHEEL "nvidia/nccl/lib/libnccl.so.2"

static struct nccl_api g_api;

static void test_functions(void **state)
{
    char name[PATH_MAX + 64];
    assert_int_equal(g_api.version, 22707);
    assert_string_equal(g_api.text, "2.27.7");
    assert_int_equal(g_api.cuda, 13000);
    assert_non_null(strstr(nccl_api_name(&g_api, name, sizeof(name)), WHEEL));
    assert_non_null(g_api.ncclCommInitRankConfig);
    assert_non_null(g_api.ncclRedOpCreatePreMulSum);
    assert_non_null(g_api.ncclRedOpDestroy);
    assert_non_null(g_api.ncclGetLastError);
    assert_string_equal(g_api.ncclGetErrorString(NCCL_ABI_SUCCESS), "no error");
}

static void test_id(void **state)
{
    struct nccl_abi_id a = {{0}}, b = {{0}};
    assert_int_equal(g_api.ncclGetUniqueId(&a), NCCL_ABI_SUCCESS);
    assert_int_equal(g_api.ncclGetUniqueId(&b), NCCL_ABI_SUCCESS);
    assert_memory_not_equal(&a, &b, sizeof(a));
}

static void test_alone(void **state)
{
    const struct nccl_host host = {.ctx = NULL};
    struct nccl_abi_id id;
    const struct nccl_limits limits = {.init_ms = 60000, .launch_ms = 60000, .abort_ms = 20000};
    uint64_t deadline = deadline_in_ms(60000);
    struct nccl_comm *c = NULL;
    struct err err = {0};
    int rc = 1;
    assert_int_equal(nccl_comm_create(&g_api, &host, &limits, &c, &err), 0);
    while ((rc = nccl_comm_id(c, 1, &id, &err)) == 1 && !deadline_passed(deadline))
        nap_ms(1);
    assert_int_equal(rc, 0);
    assert_int_equal(nccl_comm_start(c, 0, 1, &id, &err), 0);
    while ((rc = nccl_comm_progress(c, &err)) == 1 && !deadline_passed(deadline))
        nap_ms(1);
    if (rc == 0) {
        print_message("there is a GPU: a world of one is ready\n");
    } else {
        assert_int_equal(rc, -EIO);
        assert_non_null(strstr(err.msg, "NCCL 2.27.7 ("));
        assert_non_null(strstr(err.msg, "rank 0 of 1: ncclCommInitRankConfig: unhandled cuda"));
        assert_null(strchr(err.msg, '\n'));
    }
    assert_true(nccl_comm_destroy(c));
}

/* Writes the folder of wheels to dst, which tests/e2e/test_probe.sh shares. Returns 77 if there
 * is no pip or no package index. */
static int get_wheels(char *dst, size_t size)
{
    const char *build = getenv("BUILD");
    char command[PATH_MAX + 64];
    snprintf(dst, size, "%s/wheels/" WHEEL, build ? build : "build");
    if (access(dst, R_OK) == 0)
        return 0;
    snprintf(command, sizeof(command), "tests/wheels.sh '%s/wheels'", build ? build : "build");
    int status = system(command); /* the project's own script */
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_id),
        cmocka_unit_test(test_alone),
    };
    struct nccl_place place = {.origin = NCCL_ASKED};
    struct err err = {0};
    int rc = get_wheels(place.path, sizeof(place.path));
    if (rc == 77) {
        puts("SKIP: backend/nccl_real: pip: no Python package index in reach");
        return 77;
    }
    if (rc != 0 || nccl_api_open(&place, &g_api, &err) < 0) {
        printf("%d %s\n", rc, err.msg);
        return 1;
    }
    return cmocka_run_group_tests_name("backend/nccl_real", tests, NULL, NULL);
}
