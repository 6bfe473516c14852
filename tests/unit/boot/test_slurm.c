/* SPDX-License-Identifier: Apache-2.0
 *
 * test_slurm: the first host of Slurm's host lists, ports, and the variables that a task must have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/boot/boot.h"
#include "core/boot/slurm.h"

static void test_first_host(void **state)
{
    (void)state;
    static const struct {
        const char *list, *host;
    } good[] = {
        {"a", "a"},
        {"node1,node2", "node1"},
        {"node[1-4]", "node1"},
        {"node[003-104,7],x", "node003"},
        {"r[1-2]n[05,06]-ib,z", "r1n05-ib"},
        {"gpu[7]", "gpu7"},
    };
    static const char *const bad[] = {"", ",a", "a]", "a[1", "a[1-2"};
    char host[64];
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(slurm_first_host(good[i].list, host, sizeof(host)), 0);
        assert_string_equal(host, good[i].host);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(slurm_first_host(bad[i], host, sizeof(host)), -EINVAL);
    assert_int_equal(slurm_first_host("abcd", host, 4), -EINVAL);
    assert_int_equal(slurm_first_host("abc", host, 4), 0);
    char huge[1000];
    memset(huge, '1', sizeof(huge) - 1);
    huge[sizeof(huge) - 1] = '\0';
    assert_int_equal(slurm_first_host(huge, host, sizeof(host)), -EINVAL);
    huge[3] = '[';
    assert_int_equal(slurm_first_host(huge, host, sizeof(host)), -EINVAL);
}

static void test_port(void **state)
{
    (void)state;
    for (uint32_t job = 0; job < 5000; job += 7) {
        int port = slurm_port(job * 991u, job % 5);
        assert_in_range(port, 1024, 32767);
        assert_int_equal(port, slurm_port(job * 991u, job % 5));
    }
    assert_int_not_equal(slurm_port(1, 0), slurm_port(1, 1));
    assert_int_not_equal(slurm_port(1, 0), slurm_port(2, 0));
}

static void opens(const char *name, int rank, int size)
{
    struct boot boot;
    struct err err = {0};
    assert_int_equal(boot_open(&boot, &err), 0);
    assert_string_equal(boot.ops->name, name);
    assert_int_equal(boot.rank, rank);
    assert_int_equal(boot.size, size);
    boot_fini(&boot);
}

static void test_task(void **state)
{
    (void)state;
    struct boot boot;
    struct err err = {0};
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "4", 1);
    opens("alone", 0, 1); /* a batch script */
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "3", 1);
    opens("slurm", 3, 4);
    setenv("SLURM_PROCID", "4", 1);
    assert_int_equal(boot_open(&boot, &err), -EINVAL);
    unsetenv("SLURM_STEP_NUM_TASKS");
    assert_int_equal(boot_open(&boot, &err), -EINVAL);
    setenv("HVD_RANK", "1", 1); /* HVD_RANK comes first */
    setenv("HVD_SIZE", "2", 1);
    setenv("HVD_RENDEZVOUS", "127.0.0.1:7000", 1);
    opens("env", 1, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_host),
        cmocka_unit_test(test_port),
        cmocka_unit_test(test_task),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
