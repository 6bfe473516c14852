/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_net: whether NCCL has only sockets between hosts: network devices, the variables of
 * NCCL that name one, and a network plugin.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/backend/nccl_net.h"

static char none[] = "/tmp/hvd-net-XXXXXX", some[64], absent[64], closed[64];

static int setup(void **state)
{
    if (!mkdtemp(none))
        return -1;
    snprintf(some, sizeof(some), "%s/ports", none);
    snprintf(absent, sizeof(absent), "%s/ports/absent", none);
    snprintf(closed, sizeof(closed), "%s/ports/mlx5_0", none);
    return mkdir(some, 0700) == 0 && mkdir(closed, 0700) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    return rmdir(closed) | rmdir(some) | rmdir(none);
}

static void clean(void)
{
    unsetenv("NCCL_NET");
    unsetenv("NCCL_NET_PLUGIN");
    unsetenv("NCCL_IB_DISABLE");
}

static void test_ports(void **state)
{
    clean();
    assert_true(nccl_net_is_sockets(absent));
    assert_true(nccl_net_is_sockets(closed)); /* a folder without entries */
    assert_false(nccl_net_is_sockets(some));
    setenv("NCCL_IB_DISABLE", "0", 1);
    assert_false(nccl_net_is_sockets(some));
    setenv("NCCL_IB_DISABLE", "1", 1);
    assert_true(nccl_net_is_sockets(some));
    assert_false(chmod(closed, 0));
    clean();
    if (geteuid() != 0)
        assert_false(nccl_net_is_sockets(closed));
    assert_false(chmod(closed, 0700));
}

static void test_named(void **state)
{
    clean();
    setenv("NCCL_NET", "Socket", 1);
    assert_true(nccl_net_is_sockets(some));
    setenv("NCCL_NET", "socket", 1);
    assert_true(nccl_net_is_sockets(some));
    setenv("NCCL_NET", "AWS Libfabric", 1);
    assert_false(nccl_net_is_sockets(absent));
    setenv("NCCL_NET", "", 1);
    assert_true(nccl_net_is_sockets(absent));
}

static void test_plugin(void **state)
{
    clean();
    setenv("NCCL_NET_PLUGIN", "gin", 1);
    assert_false(nccl_net_is_sockets(absent));
    setenv("NCCL_NET_PLUGIN", "none", 1);
    assert_true(nccl_net_is_sockets(absent));
    assert_false(nccl_net_is_sockets(some));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_plugin),
    };
    return cmocka_run_group_tests_name("backend/test_nccl_net", tests, setup, teardown);
}
