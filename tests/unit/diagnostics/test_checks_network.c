/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_network: interfaces, names, the kernel's settings for TCP, and NCCL's choice of an
 * interface, on captured machines; the probes on this one.
 */
#include "tests/unit/diagnostics/checkup.h"

#include <unistd.h>

#include "diagnostics/probe.h"

/* Interface flags: 4163 is up, running, broadcast, multicast; 4099 is the same without carrier;
 * 73 is lo. */
#define LO                                                                                         \
    "if.0.name lo\nif.0.flags 73\nif.0.type 772\nif.0.mtu 65536\n"                                 \
    "if.0.packets 100\nif.0.errors 0\nif.0.errors_grown 0\n"                                       \
    "addr.0.if lo\naddr.0.ip 127.0.0.1\naddr.0.family 4\naddr.0.scope host\n"
#define ETH0                                                                                       \
    "if.1.name eth0\nif.1.flags 4163\nif.1.type 1\nif.1.mtu 1500\nif.1.driver veth\n"              \
    "if.1.speed 10000\nif.1.packets 2000000\nif.1.errors 0\nif.1.errors_grown 0\n"                 \
    "addr.1.if eth0\naddr.1.ip 10.0.0.5\naddr.1.family 4\naddr.1.scope global\n"
#define SECOND(name, flags, mtu, driver)                                                           \
    "if.2.name " name "\nif.2.flags " flags "\nif.2.type 1\nif.2.mtu " mtu "\n"                    \
    "if.2.driver " driver "\naddr.2.if " name "\naddr.2.ip 10.1.0.5\naddr.2.family 4\n"            \
    "addr.2.scope global\n"

static void job(int ranks, int local)
{
    checkup.setting.ranks = ranks;
    checkup.setting.local_ranks = local;
}

static void test_up(void **state)
{
    checkup_new();
    checkup_expect("nic-up", CHECK_SKIP, "not asked");
    checkup_answer("network", "sample_ms 200\n" LO ETH0);
    checkup_expect("nic-up", CHECK_PASS, "up: eth0 10.0.0.5 (10 Gb/s)");
    checkup_answer("network", "sample_ms 200\n" LO);
    checkup_expect("nic-up", CHECK_WARN, "no interface but loopback");
    job(8, 8);
    checkup_expect("nic-up", CHECK_INFO, "enough for 8 ranks");
    job(16, 8);
    checkup_expect("nic-up", CHECK_FAIL, "8 of 16 ranks are on other machines");
    checkup_answer("network", "sample_ms 200\n" LO ETH0 SECOND("eth1", "4099", "1500", "mlx5"));
    checkup_expect("nic-up", CHECK_WARN, "eth1 10.1.0.5: an address but no carrier");
    /* A bridge without members has no carrier, which is normal. */
    checkup_answer("network",
                   "sample_ms 200\n" LO ETH0 SECOND("docker0", "4099", "1500", "bridge"));
    checkup_expect("nic-up", CHECK_PASS, "up: eth0");
    checkup_answer("network", "sample_ms 200\nif.0.name eno1\nif.0.flags 4163\nif.0.type 1\n"
                              "if.0.mtu 1500\nif.0.speed 100\naddr.0.if eno1\n"
                              "addr.0.ip 10.0.0.5\naddr.0.family 4\naddr.0.scope global\n");
    checkup_expect("nic-up", CHECK_WARN, "eno1 100 Mb/s: such a slow link");
}

static void test_named(void **state)
{
    checkup_new();
    checkup_answer("network", "sample_ms 200\n" LO ETH0);
    checkup.setting.interfaces = "eth1,eth0";
    checkup_expect("nic-up", CHECK_PASS, "eth0");
    checkup.setting.interfaces = "10.0.0.0/8";
    checkup_expect("nic-up", CHECK_PASS, "eth0");
    checkup.setting.interfaces = "192.168.0.0/16";
    checkup_expect("nic-up", CHECK_FAIL, "HVD_IFACE=192.168.0.0/16 names no interface");
    assert_int_equal(checkup.result.action, ACTION_ENVIRONMENT);
    checkup.setting.interfaces = "lo"; /* all ranks run on one machine */
    checkup_expect("nic-up", CHECK_PASS, "eth0");
    checkup.setting.interfaces = NULL;
    checkup_env("GLOO_SOCKET_IFNAME", "ens5");
    checkup_expect("nic-up", CHECK_FAIL, "GLOO_SOCKET_IFNAME=ens5 names no interface");
    assert_non_null(strstr(checkup.result.fix[FIX_HOST], "unset GLOO_SOCKET_IFNAME"));
}

static void test_silent_probe(void **state)
{
    checkup_new();
    checkup_answer("network", "state timeout 1000\n");
    checkup_expect("nic-up", CHECK_WARN, "timed out after 1000 ms");
    checkup_answer("network", "state failed 13\n");
    checkup_expect("nic-mtu-consistent", CHECK_SKIP, "Permission denied");
    checkup_answer("network", "state crashed 11\n");
    checkup_expect("nic-errors", CHECK_WARN, "crashed with SIGSEGV");
    checkup_answer("network", "if.0.name\nif.0.flags many\naddr.0.ip \nif.70000.name x\n\n=\n");
    checkup_expect("nic-up", CHECK_WARN, "no interface but loopback");
    checkup_expect("nic-errors", CHECK_SKIP, "no counters");
    checkup_expect("ipv6-only", CHECK_SKIP, "no interface to other machines");
}

static void test_mtu(void **state)
{
    checkup_new();
    checkup_answer("network", "sample_ms 200\n" LO);
    checkup_expect("nic-mtu-consistent", CHECK_SKIP, "no interface to other machines");
    checkup_answer("network", "sample_ms 200\n" LO ETH0 SECOND("eth1", "4163", "1500", "mlx5"));
    checkup_expect("nic-mtu-consistent", CHECK_PASS, "eth0 1500, eth1 1500");
    checkup_answer("network", "sample_ms 200\n" LO ETH0 SECOND("eth1", "4163", "9000", "mlx5"));
    checkup_expect("nic-mtu-consistent", CHECK_WARN, "MTUs differ: eth0 1500, eth1 9000");
    checkup_answer("network",
                   "sample_ms 200\n" LO ETH0 SECOND("docker0", "4163", "9000", "bridge"));
    checkup_expect("nic-mtu-consistent", CHECK_PASS, "eth0 1500");
    checkup_answer("network", "sample_ms 200\n" LO ETH0 SECOND("eth1", "4163", "576", "mlx5"));
    checkup_expect("nic-mtu-consistent", CHECK_WARN, "eth1 has an MTU of 576");
}

#define COUNTED(packets, errors, grown)                                                            \
    "sample_ms 200\nif.0.name eth0\nif.0.flags 4163\nif.0.packets " packets                        \
    "\nif.0.errors " errors "\nif.0.errors_grown " grown "\n"

static void test_errors(void **state)
{
    checkup_new();
    checkup_answer("network", COUNTED("1000000", "0", "0"));
    checkup_expect("nic-errors", CHECK_PASS, "no errors on 1 interface");
    checkup_answer("network", COUNTED("1000000", "3", "0"));
    checkup_expect("nic-errors", CHECK_INFO, "eth0 3");
    checkup_answer("network", COUNTED("1000000", "200", "0"));
    checkup_expect("nic-errors", CHECK_WARN, "eth0 200 errors in 1000000 packets");
    checkup_answer("network", COUNTED("1000000", "3", "2"));
    checkup_expect("nic-errors", CHECK_WARN, "eth0 2 more in 200 ms");
    checkup_answer("network", COUNTED("100000000000", "200", "0"));
    checkup_expect("nic-errors", CHECK_INFO, "old errors");
}

static void test_flaps(void **state)
{
    (void)state;
    checkup_new();
    checkup_answer("network", "sample_ms 200\n" LO ETH0);
    checkup_expect("nic-flaps", CHECK_SKIP, "/sys/class/net");
    checkup_file("sys/class/net/eth0/carrier_changes", "2\n");
    checkup_file("sys/class/net/lo/carrier_changes", "900\n");
    checkup_expect("nic-flaps", CHECK_PASS, "1 interface");
    checkup_file("sys/class/net/eth0/carrier_changes", "64\n");
    checkup_expect("nic-flaps", CHECK_WARN, "eth0 64 times");
    checkup_file("sys/class/net/eth0/carrier_changes", "many\n");
    checkup_expect("nic-flaps", CHECK_SKIP, "");
}

static void test_families(void **state)
{
    checkup_new();
    checkup_answer("network", "sample_ms 200\n" LO ETH0);
    checkup_expect("ipv6-only", CHECK_PASS, "IPv4 only");
    checkup_answer("hostname", "name w\naddr.0.ip fd00::5\naddr.0.family 6\n");
    checkup_expect("ipv6-only", CHECK_WARN, "the host name has only IPv6 addresses");
    checkup_answer(
        "hostname",
        "name w\naddr.0.ip ::1\naddr.0.family 6\n"); /* a loopback address does not count */
    checkup_expect("ipv6-only", CHECK_PASS, "IPv4 only");
    checkup_answer("hostname", "name w\naddr.0.ip 10.0.0.5\naddr.0.family 4\n");
    checkup_env("NCCL_SOCKET_FAMILY", "AF_INET6");
    checkup_expect("ipv6-only", CHECK_FAIL, "NCCL_SOCKET_FAMILY=AF_INET6, but");
    checkup_new();
    checkup_answer("network", "if.0.name eth0\nif.0.flags 4163\naddr.0.if eth0\naddr.0.ip fd00::5\n"
                              "addr.0.family 6\naddr.0.scope global\n");
    checkup_expect("ipv6-only", CHECK_INFO, "IPv6 only");
}

static void test_resolves(void **state)
{
    checkup_new();
    checkup_expect("hostname-resolves", CHECK_SKIP, "cannot be read");
    checkup_file("proc/sys/kernel/hostname", "w1\n");
    checkup_answer("network", "sample_ms 200\n" LO ETH0);
    checkup_expect("hostname-resolves", CHECK_SKIP, "not asked");
    checkup_answer("hostname", "name w1\naddr.0.ip 10.0.0.5\naddr.0.family 4\n");
    checkup_expect("hostname-resolves", CHECK_PASS, "w1 is 10.0.0.5");
    checkup_answer("hostname", "name w1\naddr.0.ip 127.0.1.1\naddr.0.family 4\n");
    checkup_expect("hostname-resolves", CHECK_WARN, "resolves to 127.0.1.1 only");
    job(4, 4);
    checkup_expect("hostname-resolves", CHECK_INFO, "stays on this machine");
    job(8, 4);
    checkup_expect("hostname-resolves", CHECK_WARN,
                   "connect to themselves; hvd does not use the name");
    checkup_answer("hostname", "name w1\naddr.0.ip 10.9.9.9\naddr.0.family 4\n");
    checkup_expect("hostname-resolves", CHECK_WARN, "10.9.9.9, which no interface here has");
    checkup_answer("hostname", "name w1\nerror Name or service not known\n");
    checkup_expect("hostname-resolves", CHECK_WARN, "does not resolve: Name or service");
    checkup_answer("hostname", "state timeout 4000\n");
    checkup_expect("hostname-resolves", CHECK_WARN, "timed out after 4000 ms");
}

static void test_unique(void **state)
{
    checkup_new();
    checkup_expect("hostname-unique", CHECK_SKIP, "/proc");
    checkup_file("proc/sys/kernel/hostname", "node-17\n");
    checkup_expect("hostname-unique", CHECK_PASS, "node-17");
    checkup_file("proc/sys/kernel/hostname", "localhost\n");
    checkup_expect("hostname-unique", CHECK_WARN, "several machines may have");
    job(8, 4);
    checkup_expect("hostname-unique", CHECK_WARN, "hvd does not use it");
    checkup_file("proc/sys/kernel/hostname", "");
    checkup_expect("hostname-unique", CHECK_WARN, "\"\"");
}

static void test_ports(void **state)
{
    static const char range[] = "proc/sys/net/ipv4/ip_local_port_range";
    checkup_new();
    checkup_expect("port-range", CHECK_SKIP, "No such file");
    checkup_file(range, "32768\t60999\n");
    checkup_expect("port-range", CHECK_PASS, "28232");
    checkup_file("proc/sys/net/ipv4/ip_local_reserved_ports", "33000-60999\n");
    checkup_expect("port-range", CHECK_WARN, "only 232 ephemeral ports");
    checkup_file("proc/sys/net/ipv4/ip_local_reserved_ports", "8080,9000-9010\n");
    checkup_expect("port-range", CHECK_PASS, "28232");
    checkup_file(range, "50000\t50010\n");
    checkup_expect("port-range", CHECK_WARN, "only 11 ephemeral ports");
    checkup_file(range, "garbage");
    checkup_expect("port-range", CHECK_SKIP, "no two ports");
}

static void test_conntrack(void **state)
{
    checkup_new();
    checkup_expect("conntrack", CHECK_SKIP, "/proc/sys/net is not there");
    checkup_file("proc/sys/net/ipv4/tcp_mem", "");
    checkup_expect("conntrack", CHECK_PASS, "no connection tracking");
    checkup_file("proc/sys/net/netfilter/nf_conntrack_max", "262144\n");
    checkup_file("proc/sys/net/netfilter/nf_conntrack_count", "300\n");
    checkup_expect("conntrack", CHECK_PASS, "300 of 262144");
    checkup_file("proc/sys/net/netfilter/nf_conntrack_count", "210000\n");
    checkup_expect("conntrack", CHECK_WARN, "80 %");
    checkup_file("proc/sys/net/netfilter/nf_conntrack_count", "262000\n");
    checkup_expect("conntrack", CHECK_FAIL, "soon be dropped");
    checkup_file("proc/sys/net/netfilter/nf_conntrack_max", "0\n");
    checkup_expect("conntrack", CHECK_SKIP, "not a number above 0");
}

static void test_congestion(void **state)
{
    checkup_new();
    checkup_expect("tcp-congestion", CHECK_SKIP, "No such file");
    checkup_file("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
    checkup_expect("tcp-congestion", CHECK_PASS, "cubic");
    checkup_file("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
    checkup_file("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno bbr\n");
    checkup_expect("tcp-congestion", CHECK_INFO, "programs may not choose cubic (reno bbr)");
    checkup_file("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic bbr\n");
    checkup_expect("tcp-congestion", CHECK_INFO, "hvd asks for cubic");
}

static void test_nccl(void **state)
{
    static const struct {
        const char *value, *words;
        enum check_status want;
    } cases[] = {
        {"eth", "takes eth0", CHECK_PASS},         {"=eth0", "takes eth0", CHECK_PASS},
        {"^docker", "takes lo, eth0", CHECK_PASS}, {"eth0:1", "takes eth0", CHECK_PASS},
        {"=eth", "matches no", CHECK_FAIL},        {"ens5", "matches no", CHECK_FAIL},
        {"^eth,lo", "matches no", CHECK_FAIL},     {"lo", "only loopback", CHECK_FAIL},
        {"x", "is not set", CHECK_PASS},
    };
    checkup_new();
    checkup_expect("nccl-ifname-match", CHECK_SKIP, "--profile gpu");
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        checkup_new();
        checkup.setting.profiles = PROFILE_GPU;
        job(16, 8);
        checkup_answer("network", "sample_ms 200\n" LO ETH0);
        checkup_env("NCCL_SOCKET_IFNAME", cases[i].value);
        checkup_expect("nccl-ifname-match", cases[i].want, cases[i].words);
    }
}

static void test_nccl_virtual(void **state)
{
    checkup_new();
    checkup.setting.profiles = PROFILE_GPU;
    checkup_answer("network", "sample_ms 200\n" LO ETH0);
    checkup_expect("nccl-ifname-virtual", CHECK_PASS, "NCCL takes eth0");
    checkup_answer("network", "sample_ms 200\n" LO ETH0 SECOND("cni0", "4163", "1500", "bridge"));
    checkup_expect("nccl-ifname-virtual", CHECK_WARN, "of which cni0 is virtual");
    job(8, 8);
    checkup_expect("nccl-ifname-virtual", CHECK_INFO, "enough for ranks of one machine");
    job(0, 1);
    checkup_answer("network",
                   "sample_ms 200\n" LO ETH0 SECOND("docker0", "4163", "1500", "bridge"));
    checkup_expect("nccl-ifname-virtual", CHECK_PASS, "NCCL takes eth0");
    checkup_answer("network", "sample_ms 200\nif.0.name docker0\nif.0.flags 4163\n"
                              "addr.0.if docker0\naddr.0.ip 172.17.0.1\naddr.0.family 4\n"
                              "addr.0.scope global\n");
    checkup_expect("nccl-ifname-virtual", CHECK_WARN, "NCCL takes docker0");
    checkup_answer("network", "sample_ms 200\n" LO ETH0 SECOND("ib0", "4163", "2044", "ib_ipoib"));
    checkup_expect("nccl-ifname-virtual", CHECK_PASS, "NCCL takes ib0");
    checkup_env("NCCL_SOCKET_IFNAME", "cali");
    checkup_expect("nccl-ifname-virtual", CHECK_SKIP, "see nccl-ifname-match");
}

/* ---- the probes, on this machine ---- */

static void test_probes(void **state)
{
    static const char *const names[] = {"network", "hostname", "workers"};
    struct setting s = {.level = 1, .timeout_ms = 10000};
    struct err err = {0};
    struct machine m;
    char own[256];
    setenv("HVD_RENDEZVOUS", "localhost:4000", 1);
    setenv("MASTER_ADDR", "10.0.0.1", 1); /* an address: not looked up */
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_int_equal(probe_ask(&m, names, 3, &s, &err), 0);
    const struct answer *a = machine_answer(&m, "network");
    assert_int_equal(a->state, ANSWER_OK);
    bool lo = false;
    for (int i = 0; i < answer_count(a, "if"); i++)
        lo |= strcmp(answer_str_at(a, "if", i, "name", ""), "lo") == 0 &&
              answer_int_at(a, "if", i, "type", 0) == 772 &&
              answer_int_at(a, "if", i, "errors_grown", -1) == 0;
    assert_true(lo);
    /* A slow name server can delay this probe; its state is then a timeout. */
    a = machine_answer(&m, "hostname");
    assert_true(a->state == ANSWER_OK || a->state == ANSWER_TIMEOUT);
    gethostname(own, sizeof(own));
    if (a->state == ANSWER_OK) {
        assert_string_equal(answer_str(a, "name", ""), own);
        assert_true(answer_count(a, "addr") > 0 || answer_has(a, "error"));
    }
    a = machine_answer(&m, "workers");
    assert_int_equal(a->state, ANSWER_OK);
    assert_int_equal(answer_count(a, "name"), 1);
    assert_string_equal(answer_str_at(a, "name", 0, "name", ""), "localhost");
    assert_string_equal(answer_str_at(a, "name", 0, "source", ""), "HVD_RENDEZVOUS");
    assert_non_null(answer_str_at(a, "name", 0, "ip", NULL));
    machine_close(&m);
    unsetenv("HVD_RENDEZVOUS");
    unsetenv("MASTER_ADDR");
}

static void test_tables(void **state)
{
    static const struct check_table *const tables[] = {&checks_nccl_ifname, &checks_interfaces,
                                                       &checks_network};
    for (size_t i = 0; i < 3; i++) {
        checkup_texts(tables[i]);
        checkup_all_seen(tables[i]);
    }
    checkup_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_up),
        cmocka_unit_test(test_named),
        cmocka_unit_test(test_silent_probe),
        cmocka_unit_test(test_mtu),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_flaps),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_resolves),
        cmocka_unit_test(test_unique),
        cmocka_unit_test(test_ports),
        cmocka_unit_test(test_conntrack),
        cmocka_unit_test(test_congestion),
        cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_nccl_virtual),
        cmocka_unit_test(test_probes),
        cmocka_unit_test(test_tables), /* last, because it needs the results of the other tests */
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
