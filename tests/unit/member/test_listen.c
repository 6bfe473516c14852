/* SPDX-License-Identifier: Apache-2.0
 *
 * listen: a coordinator that takes over (hvdrun attach) can listen on the same port at once, while
 * connections of the previous coordinator are not quite closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/member/listen.h"

static int connect_to(const char *address, int port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    bool is_v4 = inet_pton(AF_INET, address, &v4.sin_addr) == 1;
    if (!is_v4)
        assert_int_equal(inet_pton(AF_INET6, address, &v6.sin6_addr), 1);
    int fd = socket(is_v4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    int rc = is_v4 ? connect(fd, (struct sockaddr *)&v4, sizeof(v4))
                   : connect(fd, (struct sockaddr *)&v6, sizeof(v6));
    assert_int_equal(rc, 0);
    return fd;
}

/* The server closes first, as if it was killed: its side of the connection stays in FIN_WAIT2
 * while the other side is open, and in TIME_WAIT afterwards. */
static void take_again(const char *address)
{
    struct err err = {0};
    int port = 0, again = 0;
    int listener = listen_tcp(address, 0, &port, &err);
    if (listener == -EADDRNOTAVAIL || listener == -EAFNOSUPPORT) {
        print_message("%s: %s: this machine lacks it, not tested\n", address, err_text(&err));
        return;
    }
    assert_true(listener >= 0);
    assert_in_range(port, 1, 65535);
    auto_close int other = connect_to(address, port);
    struct pollfd arrived = {.fd = listener, .events = POLLIN};
    assert_int_equal(poll(&arrived, 1, 10000), 1);
    int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(accepted >= 0);

    auto_close int second = -1;
    assert_int_equal(listen_tcp(address, port, &again, &err), -EADDRINUSE);
    close(accepted);
    close(listener);

    second = listen_tcp(address, port, &again, &err);
    if (second < 0)
        fail_msg("%s", err_text(&err));
    assert_int_equal(again, port);
    close(take_fd(&second));

    close(take_fd(&other));
    second = listen_tcp(address, port, &again, &err);
    if (second < 0)
        fail_msg("%s", err_text(&err));
}

static void test_again_v4(void **state)
{
    (void)state;
    take_again("127.0.0.1");
}

static void test_again_v6(void **state)
{
    (void)state;
    take_again("::1");
}

static void test_not_an_address(void **state)
{
    (void)state;
    struct err err = {0};
    int port = 0;
    assert_int_equal(listen_tcp("localhost", 0, &port, &err), -EINVAL);
    assert_non_null(strstr(err_text(&err), "localhost"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again_v4),
        cmocka_unit_test(test_again_v6),
        cmocka_unit_test(test_not_an_address),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
