/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_infiniband: RDMA devices as /sys shows them, on captured machines: up, down,
 * flapping, RoCE with and without GIDs, in a container without device files; the probe on a fake
 * /dev.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <errno.h>

#include "diagnostics/probe.h"

#define IB "sys/class/infiniband/"

static void port_file(const char *device, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof(path), IB "%s/ports/1/%s", device, name);
    checkup_file(path, text);
}

static void add_port(const char *device, const char *state, const char *rate, const char *link)
{
    port_file(device, "state", state);
    port_file(device, "rate", rate);
    port_file(device, "link_layer", link);
}

#define ADD_IB(device)   add_port(device, "4: ACTIVE\n", "200 Gb/sec (4X HDR)\n", "InfiniBand\n")
#define ADD_ROCE(device) add_port(device, "4: ACTIVE\n", "100 Gb/sec (4X EDR)\n", "Ethernet\n")

static void test_none(void **state)
{
    static const char *const ids[] = {"ib-port", "ib-flaps", "ib-dev-in-container", "libibverbs",
                                      "roce-gid"};
    for (size_t i = 0; i < sizeof(ids) / sizeof(*ids); i++) {
        checkup_new();
        checkup_expect(ids[i], CHECK_SKIP, "/sys is not there");
        checkup_file("sys/class/net/x", "");
        checkup_expect(ids[i], CHECK_SKIP, "does not apply: no InfiniBand or RoCE device");
        checkup_file("sys/class/infiniband", "a file");
        checkup_expect(ids[i], CHECK_SKIP, "/sys/class/infiniband: Not a directory");
    }
}

static void test_port(void **state)
{
    checkup_new();
    ADD_IB("mlx5_0");
    ADD_IB("mlx5_1");
    checkup_expect("ib-port", CHECK_PASS, "mlx5_0/1 InfiniBand 200 Gb/s, mlx5_1/1 InfiniBand 200");
    port_file("mlx5_1", "rate", "100 Gb/sec (4X EDR)\n");
    checkup_expect("ib-port", CHECK_WARN, "different rates");
    port_file("mlx5_1", "state", "1: DOWN\n");
    checkup_expect("ib-port", CHECK_WARN, "1 of 2 ports not active: mlx5_1/1 DOWN");
    port_file("mlx5_0", "state", "2: INIT\n");
    checkup_expect("ib-port", CHECK_WARN, "no port is active: mlx5_0/1 INIT, mlx5_1/1 DOWN");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("ib-port", CHECK_FAIL, "no port is active");
    port_file("mlx5_0", "state", "");
    port_file("mlx5_1", "state", "\xff\xfe garbage");
    checkup_expect("ib-port", CHECK_FAIL, "mlx5_0/1 unreadable");
    /* Ethernet beside InfiniBand may have another rate. An Ethernet port that is down is only
     * reported. */
    checkup_new();
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "mlx5_%d", i);
        ADD_IB(name);
    }
    checkup_expect("ib-port", CHECK_PASS, "4 ports, each InfiniBand 200 Gb/s");
    ADD_ROCE("mlx5_8");
    checkup_expect("ib-port", CHECK_PASS, "mlx5_8/1 Ethernet 100 Gb/s");
    add_port("mlx5_9", "1: DOWN\n", "25 Gb/sec (1X EDR)\n", "Ethernet\n");
    checkup_expect("ib-port", CHECK_INFO, "Ethernet ports not active: mlx5_9/1 DOWN");
    port_file("mlx5_3", "state", "1: DOWN\n");
    checkup_expect("ib-port", CHECK_WARN, "2 of 6 ports not active: mlx5_3/1 DOWN");
    checkup_env("NCCL_IB_HCA", "=mlx5_0,mlx5_1:1");
    checkup_expect("ib-port", CHECK_PASS, "mlx5_0/1 InfiniBand 200 Gb/s, mlx5_1/1");
    checkup_new();
    ADD_IB("mlx5_0");
    checkup_env("NCCL_IB_HCA", "^mlx5");
    checkup_expect("ib-port", CHECK_WARN, "NCCL_IB_HCA=^mlx5 matches no device");
    checkup_new();
    checkup_file(IB "efa_0/node_type", "1: CA\n");
    checkup_expect("ib-port", CHECK_SKIP, "1 device without a readable port");
}

static void test_flaps(void **state)
{
    checkup_new();
    ADD_IB("mlx5_0");
    checkup_expect("ib-flaps", CHECK_SKIP, "no counters");
    port_file("mlx5_0", "counters/link_downed", "0\n");
    port_file("mlx5_0", "counters/link_error_recovery", "0\n");
    checkup_expect("ib-flaps", CHECK_PASS, "no link went down, 1 port");
    port_file("mlx5_0", "counters/link_downed", "3\n");
    checkup_expect("ib-flaps", CHECK_INFO, "mlx5_0/1 3");
    port_file("mlx5_0", "counters/link_downed", "12\n");
    checkup_expect("ib-flaps", CHECK_WARN, "mlx5_0/1 down 12 times");
    port_file("mlx5_0", "counters/link_downed", "0\n");
    port_file("mlx5_0", "counters/link_error_recovery", "2\n");
    checkup_expect("ib-flaps", CHECK_WARN, "2 recoveries");
}

static void test_device_files(void **state)
{
    checkup_new();
    ADD_IB("mlx5_0");
    ADD_IB("mlx5_1");
    checkup_expect("ib-dev-in-container", CHECK_SKIP, "not asked");
    checkup_answer("infiniband", "uverbs.0.name uverbs0\nuverbs.0.errno 0\n"
                                 "uverbs.1.name uverbs1\nuverbs.1.errno 0\n");
    checkup_expect("ib-dev-in-container", CHECK_PASS, "all 2 RDMA devices");
    checkup_answer("infiniband", "uverbs.0.name uverbs0\nuverbs.0.errno 0\n"
                                 "uverbs.1.name uverbs1\nuverbs.1.errno 1\n");
    checkup_expect("ib-dev-in-container", CHECK_WARN, "uverbs1: Operation not permitted");
    checkup_answer("infiniband", "");
    checkup_expect("ib-dev-in-container", CHECK_WARN, "only NCCL, MPI and UCX would use them");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("ib-dev-in-container", CHECK_FAIL, "no /dev/infiniband/uverbs* to open");
    assert_int_equal(checkup.result.action, ACTION_CONTAINER_OPTION);
    checkup_answer("infiniband", "state timeout 10000\n");
    checkup_expect("ib-dev-in-container", CHECK_WARN, "timed out after 10000 ms");
}

static void test_library(void **state)
{
    checkup_new();
    ADD_IB("mlx5_0");
    checkup_expect("libibverbs", CHECK_SKIP, "not asked");
    checkup_answer("ibverbs", "path /usr/lib/x86_64-linux-gnu/libibverbs.so.1\ndevices 1\n");
    checkup_expect("libibverbs", CHECK_PASS, "libibverbs.so.1, 1 device");
    checkup_answer("ibverbs", "path /usr/lib/x86_64-linux-gnu/libibverbs.so.1\ndevices 0\n");
    checkup_expect("libibverbs", CHECK_WARN, "a provider library (libmlx5, rdma-core) is missing");
    checkup_answer("ibverbs", "");
    checkup_expect("libibverbs", CHECK_WARN, "is not in this image");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("libibverbs", CHECK_FAIL, "plain sockets");
}

#define ZERO "0000:0000:0000:0000:0000:0000:0000:0000\n"

static void test_roce(void **state)
{
    checkup_new();
    ADD_IB("mlx5_0");
    checkup_expect("roce-gid", CHECK_SKIP, "no active port with Ethernet");
    ADD_ROCE("mlx5_2");
    port_file("mlx5_2", "gids/0", "fe80:0000:0000:0000:0a00:27ff:fe00:0001\n");
    port_file("mlx5_2", "gid_attrs/types/0", "IB/RoCE v1\n");
    port_file("mlx5_2", "gids/1", ZERO);
    checkup_expect("roce-gid", CHECK_FAIL, "no RoCE v2 GID on mlx5_2/1");
    port_file("mlx5_2", "gids/1", "fe80:0000:0000:0000:0a00:27ff:fe00:0001\n");
    port_file("mlx5_2", "gid_attrs/types/1", "RoCE v2\n");
    checkup_expect("roce-gid", CHECK_WARN, "only link-local RoCE v2 GIDs on mlx5_2/1");
    port_file("mlx5_2", "gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0005\n");
    port_file("mlx5_2", "gid_attrs/types/3", "RoCE v2\n");
    checkup_expect("roce-gid", CHECK_PASS, "RoCE v2 GIDs on 1 port");
    checkup_env("NCCL_IB_GID_INDEX", "0");
    checkup_expect("roce-gid", CHECK_FAIL, "NCCL_IB_GID_INDEX=0 is not a RoCE v2 GID on mlx5_2/1");
}

static void test_peermem(void **state)
{
    checkup_new();
    ADD_IB("mlx5_0");
    checkup_expect("gdr-peermem", CHECK_SKIP, "--profile gpu");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("gdr-peermem", CHECK_SKIP, "no NVIDIA driver");
    checkup_file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n");
    checkup_file("proc/sys/kernel/osrelease", "6.1.0-13-amd64\n");
    checkup_expect("gdr-peermem", CHECK_WARN, "neither nvidia_peermem nor DMA-BUF");
    checkup_file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module\n");
    checkup_expect("gdr-peermem", CHECK_PASS, "DMA-BUF");
    checkup_file("proc/sys/kernel/osrelease", "5.4.0\n");
    checkup_expect("gdr-peermem", CHECK_WARN, "neither");
    checkup_file("sys/module/nvidia_peermem/refcnt", "0\n");
    checkup_expect("gdr-peermem", CHECK_PASS, "nvidia_peermem is loaded");
}

/* A fake /dev with a file that opens, one that does not, and one that is not a verbs device. */
static void test_probe(void **state)
{
    const struct probe *p = probe_find("infiniband");
    struct setting s = {.level = 1, .timeout_ms = 20000};
    struct err err = {0};
    struct machine m;
    char link[256];
    assert_non_null(p);
    checkup_new();
    checkup_file("dev/infiniband/uverbs0", "");
    checkup_file("dev/infiniband/rdma_cm", "");
    snprintf(link, sizeof(link), "%s/root/dev/infiniband/uverbs1", checkup.dir);
    assert_int_equal(symlink("uverbs1", link),
                     0); /* a loop of links: open(2) fails even for root */
    assert_int_equal(machine_open_captured(&m, checkup.dir, &err), 0);
    assert_int_equal(probe_run(&m, &p, 1, &s, &err), 0);
    const struct answer *a = machine_answer(&m, "infiniband");
    assert_int_equal(a->state, ANSWER_OK);
    assert_int_equal(answer_count(a, "uverbs"), 2);
    assert_int_equal(answer_int_at(a, "uverbs", 0, "errno", -1), 0);
    assert_int_equal(answer_int_at(a, "uverbs", 1, "errno", -1), ELOOP);
    machine_close(&m);
    checkup_new();
    assert_int_equal(machine_open_captured(&m, checkup.dir, &err), 0);
    assert_int_equal(probe_run(&m, &p, 1, &s, &err), 0);
    assert_int_equal(answer_count(machine_answer(&m, "infiniband"), "uverbs"), 0);
    machine_close(&m);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_infiniband);
    checkup_all_seen(&checks_infiniband);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),    cmocka_unit_test(test_port),
        cmocka_unit_test(test_flaps),   cmocka_unit_test(test_device_files),
        cmocka_unit_test(test_library), cmocka_unit_test(test_roce),
        cmocka_unit_test(test_peermem), cmocka_unit_test(test_probe),
        cmocka_unit_test(test_tables), /* last, because it needs the results of the other tests */
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
