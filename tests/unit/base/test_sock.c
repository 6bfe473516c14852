/* SPDX-License-Identifier: Apache-2.0
 *
 * sock: addresses as text, networks, this machine's interfaces, listening and connecting.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/sock.h"

static void test_split(void **state)
{
    char host[SOCK_HOST_MAX];
    uint16_t port;
    assert_int_equal(sock_split("10.0.0.1:7000", host, &port, NULL), 0);
    assert_string_equal(host, "10.0.0.1");
    assert_int_equal(port, 7000);
    assert_int_equal(sock_split("[fd00::1]:65535", host, &port, NULL), 0);
    assert_string_equal(host, "fd00::1");
    assert_int_equal(port, 65535);
    assert_int_equal(sock_split("node-3.example:1", host, &port, NULL), 0);
    assert_string_equal(host, "node-3.example");
    static const char *const bad[] = {"",     "host",    ":7",    "host:",  "host:0", "h:65536",
                                      "h:7x", "fd00::1", "[::1]", "[::1]7", "[]:7",   "[::1",
                                      "h: 7", "h:-1",    "h:+7",  "::1:80"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err;
        assert_int_equal(sock_split(bad[i], host, &port, &err), -EINVAL);
        assert_non_null(strstr(err.msg, bad[i]));
    }
    assert_string_equal(host, "node-3.example");
    char longer[SOCK_HOST_MAX + 10];
    memset(longer, 'a', sizeof(longer));
    strcpy(longer + SOCK_HOST_MAX, ":7");
    assert_int_equal(sock_split(longer, host, &port, NULL), -EINVAL);
}

static void test_text(void **state)
{
    char text[SOCK_TEXT_MAX];
    struct sock_addr a;
    assert_int_equal(sock_parse_ip("10.2.3.4", &a, NULL), 0);
    assert_int_equal(a.prefix, 32);
    assert_string_equal(sock_text(&a, text), "10.2.3.4");
    a.port = 80;
    assert_string_equal(sock_text(&a, text), "10.2.3.4:80");
    assert_int_equal(sock_parse_ip("fd00::1/64", &a, NULL), 0);
    assert_int_equal(a.prefix, 64);
    a.port = 80;
    assert_string_equal(sock_text(&a, text), "[fd00::1]:80");
    static const char *const bad[] = {
        "",
        "10.0.0",
        "10.0.0.1/33",
        "::1/129",
        "::1/",
        "host",
        "1.2.3.4/x",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(sock_parse_ip(bad[i], &a, NULL), -EINVAL);
}

static bool within(const char *network, const char *ip)
{
    struct sock_addr a, b;
    assert_int_equal(sock_parse_ip(network, &a, NULL), 0);
    assert_int_equal(sock_parse_ip(ip, &b, NULL), 0);
    return sock_in_network(&a, &b);
}

static void test_networks(void **state)
{
    assert_true(within("10.1.2.3/24", "10.1.2.255"));
    assert_false(within("10.1.2.3/24", "10.1.3.3"));
    assert_true(within("10.1.2.3/23", "10.1.3.3"));
    assert_true(within("0.0.0.0/0", "1.2.3.4"));
    assert_false(within("0.0.0.0/0", "::1"));
    assert_true(within("10.1.2.3", "10.1.2.3"));
    assert_false(within("10.1.2.3", "10.1.2.2"));
    assert_true(within("fd00:1::/33", "fd00:1:7fff::1"));
    assert_false(within("fd00:1::/33", "fd00:1:8000::1"));
    struct sock_addr a;
    sock_parse_ip("127.3.4.5", &a, NULL);
    assert_true(sock_is_loopback(&a));
    sock_parse_ip("::1", &a, NULL);
    assert_true(sock_is_loopback(&a));
    sock_parse_ip("::2", &a, NULL);
    assert_false(sock_is_loopback(&a));
}

static void test_candidates(void **state)
{
    struct sock_addr list[SOCK_MAX_ADDRS];
    size_t n = 0;
    struct err err;
    assert_int_equal(sock_candidates(NULL, NULL, list, &n, &err), 0);
    assert_true(n >= 1 && n <= SOCK_MAX_ADDRS);
    for (size_t i = 1; i < n; i++)
        assert_int_equal(sock_is_loopback(&list[i]), sock_is_loopback(&list[0]));
    assert_int_equal(sock_candidates("lo", NULL, list, &n, &err), 0);
    assert_true(sock_is_loopback(&list[0]));
    assert_int_equal(sock_candidates("nothere0,127.0.0.0/8", NULL, list, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_true(sock_is_loopback(&list[0]));
    assert_int_equal(sock_candidates("nothere0", NULL, list, &n, &err), -ENODEV);
    assert_non_null(strstr(err.msg, "nothere0"));
    /* an unknown peer name does not change the list */
    assert_int_equal(sock_candidates(NULL, "no.such.host.invalid", list, &n, &err), 0);
    struct sock_addr own[64];
    assert_true(sock_own(own, 64) >= 1);
    assert_int_equal(sock_own(own, 1), 1);
}

static int outcome(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    poll(&p, 1, 20000);
    return sock_connected(fd);
}

static void connect_over(const char *ip)
{
    struct sock_addr a;
    char name[16] = "";
    socklen_t len = sizeof(name) - 1;
    sock_parse_ip(ip, &a, NULL);
    int listener = sock_listen(&a, 4);
    if (listener == -EADDRNOTAVAIL || listener == -EAFNOSUPPORT) {
        print_message("SKIP: base/sock/%s: address: this machine has none\n", ip);
        return;
    }
    assert_true(listener >= 0);
    assert_true(a.port > 0);
    int fd = sock_connect(&a);
    assert_true(fd >= 0);
    assert_int_equal(outcome(fd), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
    assert_string_not_equal(name, "bbr");
    close(fd);
    close(listener);
    fd = sock_connect(&a);
    if (fd >= 0) {
        assert_int_equal(outcome(fd), -ECONNREFUSED);
        close(fd);
    } else {
        assert_int_equal(fd, -ECONNREFUSED);
    }
}

static void test_connect(void **state)
{
    connect_over("127.0.0.1");
    connect_over("::1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_split),    cmocka_unit_test(test_text),
        cmocka_unit_test(test_networks), cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_connect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
