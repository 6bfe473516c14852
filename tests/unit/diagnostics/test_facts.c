/* SPDX-License-Identifier: Apache-2.0
 *
 * test_facts: each fact for which a version rule may ask, true and false, on captured machines.
 */
#include "tests/unit/diagnostics/checkup.h"

#include "diagnostics/facts.h"

static const char *cuda; /* the CUDA version that NCCL was built for; NULL: unknown */

static bool holds(const char *fact)
{
    struct machine m;
    struct err err = {0};
    assert_true(facts_known(fact));
    assert_int_equal(machine_open_captured(&m, checkup.dir, &err), 0);
    const struct view v = {&m, &checkup.setting, rules_builtin()};
    struct facts facts = {.view = &v, .cuda = cuda};
    bool held = facts_holds(&facts, fact);
    machine_close(&m);
    return held;
}

/* On an empty machine no fact holds, except that something is missing. */
static void test_nothing(void **state)
{
    static const char *const facts[] = {
        "container",   "infiniband",      "roce",   "efa",    "ucx",      "nvlink",
        "no-sys-nice", "gid-index-set",   "arm64",  "gpus>0", "ranks>0",  "hosts>1",
        "cuda>=1",     "stack-unlimited", "sm<999", "sm>=1",  "glibc>=2", "openmpi>=1"};
    checkup_new();
    cuda = NULL;
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
        if (holds(facts[i]))
            fail_msg("%s holds on an empty machine", facts[i]);
        assert_true(facts_known(facts[i]));
    }
    assert_true(holds("no-gid-index"));
    assert_false(facts_known("gpu>1"));
    assert_false(facts_known("gpus>"));
    assert_false(facts_known("gpus>x"));
    assert_false(facts_known(">1"));
    assert_false(facts_known(""));
}

static void test_plain(void **state)
{
    char driver[512];
    checkup_new();
    checkup_file(".dockerenv", "");
    checkup_file("sys/class/infiniband/rdmap0/ports/1/link_layer", "Unspecified\n");
    checkup_env("NCCL_IB_GID_INDEX", "3");
    checkup_answer("ucx", "lib.0.path /l\n");
    checkup_answer("nvml", "count 4\ngpu.0.links 12\ngpu.0.sm 80\ngpu.1.sm 90\n");
    checkup_answer("elf", "machine aarch64\n");
    checkup_file("proc/self/limits", "Max stack size            unlimited            unlimited     "
                                     "       bytes     \n");
    assert_true(holds("container") && holds("infiniband") && holds("ucx") && holds("nvlink"));
    assert_true(holds("arm64") && holds("gid-index-set") && holds("stack-unlimited"));
    assert_false(holds("no-gid-index") || holds("roce") || holds("efa"));
    checkup_file("sys/class/infiniband/rdmap0/device/x", "");
    snprintf(driver, sizeof(driver), "%s/root/sys/class/infiniband/rdmap0/device/driver",
             checkup.dir);
    assert_int_equal(symlink("../../../bus/pci/drivers/efa", driver), 0);
    assert_true(holds("efa"));
    checkup_file("sys/class/infiniband/mlx5_0/ports/1/link_layer", "Ethernet\n");
    assert_true(holds("roce"));
    checkup_new();
    checkup_env("NCCL_IB_GID_INDEX", "-1");
    assert_true(holds("no-gid-index"));
}

static void test_numbers(void **state)
{
    checkup_new();
    checkup.setting.ranks = 81;
    checkup.setting.local_ranks = 8;
    assert_true(holds("ranks>80") && holds("hosts>1") && holds("hosts>=11"));
    assert_false(holds("ranks>81") || holds("hosts>11"));
    checkup.setting.ranks = 8;
    assert_false(holds("hosts>1"));
    checkup_file("dev/nvidia0", "");
    checkup_file("dev/nvidia1", "");
    checkup_file("dev/nvidiactl", "");
    assert_true(holds("gpus>1") && !holds("gpus>2"));
    checkup_answer("nvml", "count 8\ngpu.0.sm 70\ngpu.1.sm 90\n");
    assert_true(holds("gpus>7") && holds("gpus=8") && holds("gpus<=8") && !holds("gpus<8"));
    assert_true(holds("sm<75") && holds("sm>=90")); /* the oldest and the newest GPU */
    assert_false(holds("sm<70") || holds("sm>90"));
    cuda = "12.4";
    assert_true(holds("cuda>=12") && holds("cuda<12.8") && !holds("cuda>=13"));
    checkup_answer("framework", "glibc 2.36\n");
    assert_true(holds("glibc>=2.26") && holds("glibc>=2.4") && !holds("glibc>2.36"));
    checkup_answer("mpi", "lib.0.vendor mpich\nlib.0.version 4.0\n");
    assert_false(holds("openmpi>=1"));
    checkup_answer("mpi", "lib.0.vendor openmpi\nlib.0.version 4.1.4\n");
    assert_true(holds("openmpi>=1") && holds("openmpi>4") && !holds("openmpi>=5"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_plain),
        cmocka_unit_test(test_numbers),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
