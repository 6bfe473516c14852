/* SPDX-License-Identifier: Apache-2.0
 *
 * dial: two hosts with several addresses each, as network namespaces: one address that leads
 * nowhere, one bridge with the same address on both, one route that works. Needs root and ip(8).
 *
 * takes: 7 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/transport/link_private.h"
#include "core/transport/listener.h"
#include "tests/harness/mesh_ranks.h"

static char ns[2][32];

/* /32 addresses on the wire, so that no common network tells which address works. */
static const char setup[] =
    "set -e; ip netns add %1$s; ip netns add %2$s\n"
    "ip -n %1$s link add wire type veth peer name wire netns %2$s\n"
    "for n in %1$s %2$s; do ip -n $n link set lo up; ip -n $n link add bridge0 type bridge\n"
    "ip -n $n addr add 172.31.0.1/16 dev bridge0; ip -n $n link set bridge0 up\n"
    "ip -n $n link add dead type veth peer name end; ip -n $n link set end up\n"
    "ip -n $n link set dead up; ip -n $n link set wire up; "
    "done\n"
    "ip -n %1$s addr add 10.66.1.1/24 dev dead; ip -n %1$s route add default dev dead\n"
    "ip -n %2$s addr add 10.66.2.1/24 dev dead; ip -n %2$s route add default dev dead\n"
    "ip -n %1$s addr add 10.77.0.1/32 dev wire; ip -n %1$s route add 10.77.0.2 dev wire\n"
    "ip -n %2$s addr add 10.77.0.2/32 dev wire; ip -n %2$s route add 10.77.0.1 dev wire\n";

static int drop_hosts(void **state)
{
    char script[128];
    for (int i = 0; i < 2 && ns[0][0]; i++) {
        snprintf(script, sizeof(script), "ip netns del %s", ns[i]);
        if (system(script) != 0)
            return -1;
    }
    return 0;
}

static int make_hosts(void **state)
{
    char script[2048];
    for (int i = 0; i < 2; i++)
        snprintf(ns[i], sizeof(ns[i]), "hvd-dial-%d-%d", getpid(), i);
    snprintf(script, sizeof(script), setup, ns[0], ns[1]);
    if (geteuid() != 0 || system("ip netns list >/dev/null 2>&1") != 0)
        ns[0][0] = '\0';
    else if (system(script) != 0)
        return drop_hosts(state), -1;
    return 0;
}

static void move_in(int rank)
{
    char path[64];
    snprintf(path, sizeof(path), "/run/netns/%s", ns[rank]);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) < 0)
        _exit(90);
    close(fd);
}

static void move_in_wire(int rank)
{
    move_in(rank);
    setenv("HVD_IFACE", rank ? "10.77.0.0/24" : "wire", 1);
}

static bool established(void *arg)
{
    struct link *link = arg;
    return link->ops != NULL;
}

/* The control link is connected when the mesh is. A data link takes the same route. */
static int body(struct mesh *mesh, void *arg)
{
    struct err err = {0};
    int naddrs = (int)(intptr_t)arg;
    if (mesh->hosts != 2 || (int)mesh->net->listener->card.naddrs != naddrs) {
        printf("rank %d: %d hosts, %zu addresses\n", mesh->rank, mesh->hosts,
               mesh->net->listener->card.naddrs);
        return 1;
    }
    struct link *link = mesh_link(mesh, !mesh->rank, LINK_DATA);
    int rc = mesh_ranks_until(mesh, established, link, 5000, NULL, &err);
    if (rc != 0)
        printf("rank %d: %d %s\n", mesh->rank, rc, err_text(&err));
    mesh_ranks_leave(mesh);
    return rc != 0;
}

static void try_with(void (*before)(int rank), bool no_key, int naddrs)
{
    if (!ns[0][0]) {
        print_message("SKIP: transport/dial/hosts: root: network namespaces\n");
        skip();
    }
    struct mesh_ranks m = {
        .n = 2, .before = before, .no_key = no_key, .body = body, .arg = (void *)(intptr_t)naddrs};
    mesh_ranks_run(&m);
    assert_int_equal(m.status[0], 0);
    assert_int_equal(m.status[1], 0);
}

static void test_finds_the_way(void **state)
{
    try_with(move_in, false, 3);
}

static void test_interface_chosen(void **state)
{
    try_with(move_in_wire, false, 1);
}

static void insecure(int rank)
{
    move_in(rank);
    setenv("HVD_INSECURE", "1", 1);
}

static void test_insecure(void **state)
{
    try_with(insecure, true, 3);
}

static int refuses(int rank, int rc, const struct err *err)
{
    return rc == -EACCES && strstr(err->msg, "HVD_KEY_FILE") ? 7 : 1;
}

static void test_no_key(void **state)
{
    if (!ns[0][0]) {
        print_message("SKIP: transport/dial/no_key: root: network namespaces\n");
        skip();
    }
    struct mesh_ranks m = {
        .n = 2, .before = move_in, .no_key = true, .body = body, .no_mesh = refuses};
    mesh_ranks_run(&m);
    assert_int_equal(m.status[0], 7);
    assert_int_equal(m.status[1], 7);
}

/* The wire drops all packets, while data is sent or not: both ends must notice it. */
static void impatient(int rank)
{
    move_in(rank);
    setenv("HVD_PEER_TIMEOUT_SECONDS", "2", 1);
}

static int cut(struct mesh *mesh, void *with_data)
{
    struct err err = {0};
    int peer = -9;
    struct link *link = mesh_link(mesh, !mesh->rank, LINK_CONTROL);
    mesh_ranks_until(mesh, NULL, NULL, 300, NULL, NULL);
    if (mesh->rank == 0 && system("ip link set wire down") != 0)
        return 1;
    usleep(100000);
    if (with_data)
        link_post(link, "is anybody there", 16);
    int rc = mesh_ranks_until(mesh, NULL, NULL, 30000, &peer, &err);
    if (rc != -ECONNRESET || peer != !mesh->rank) {
        printf("rank %d: %d %s\n", mesh->rank, rc, err_text(&err));
        return 2;
    }
    uint64_t begin = clock_ns();
    mesh_destroy(mesh);
    return clock_ns() - begin > 4 * CLOCK_S;
}

static void cut_wire(void *with_data)
{
    char script[128];
    struct mesh_ranks m = {.n = 2, .before = impatient, .body = cut, .arg = with_data};
    if (!ns[0][0]) {
        print_message("SKIP: transport/dial/cut: root: network namespaces\n");
        skip();
    }
    mesh_ranks_run(&m);
    snprintf(script, sizeof(script),
             "ip -n %1$s link set wire up; ip -n %1$s route add 10.77.0.2 dev wire", ns[0]);
    assert_int_equal(system(script), 0);
    assert_int_equal(m.status[0], 0);
    assert_int_equal(m.status[1], 0);
}

static void test_cut_idle(void **state)
{
    cut_wire(NULL);
}

static void test_cut_busy(void **state)
{
    cut_wire(ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_way), cmocka_unit_test(test_interface_chosen),
        cmocka_unit_test(test_insecure),      cmocka_unit_test(test_no_key),
        cmocka_unit_test(test_cut_idle),      cmocka_unit_test(test_cut_busy),
    };
    return cmocka_run_group_tests(tests, make_hosts, drop_hosts);
}
