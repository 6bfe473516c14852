/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/pages with plain HTTP over sockets of the same process. One loop runs the server;
 * the client reads without blocking.
 */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/member/pages.h"

static struct loop loop;
static int ready;

static int fill_ready(void *arg, struct buf *out)
{
    const char *text = ready ? "ready\n" : "not yet\n";
    assert_string_equal(arg, "the owner");
    buf_put(out, text, strlen(text));
    return ready ? 200 : 503;
}

static int fill_big(void *arg, struct buf *out)
{
    for (int i = 0; i < 100000; i++)
        buf_put(out, "0123456789", 10);
    return 200;
}

static const struct page table[] = {
    {"/readyz", PAGES_TEXT, fill_ready},
    {"/metrics", PAGES_PROMETHEUS, fill_big},
};

static struct pages *start(const char *address)
{
    struct pages *p;
    struct err err = {0};
    struct pages_config config = {.loop = &loop,
                                  .address = address,
                                  .pages = table,
                                  .n = sizeof(table) / sizeof(table[0]),
                                  .arg = (void *)"the owner"};
    if (pages_open(&p, &config, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(pages_port(p) > 0);
    return p;
}

/* flags: SOCK_NONBLOCK if the server may have no room for this connection yet. */
static int dial_with(const struct pages *p, int flags)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)pages_port(p))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    assert_true(fd >= 0);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        assert_int_equal(errno, EINPROGRESS);
    return fd;
}

static int dial(const struct pages *p)
{
    return dial_with(p, 0);
}

/* Reads until the server closes the connection. */
static void read_all(int fd, struct buf *ret)
{
    uint64_t deadline = deadline_in_ms(20000);
    for (;;) {
        char piece[65536];
        loop_once(&loop, 10);
        ssize_t n = recv(fd, piece, sizeof(piece), MSG_DONTWAIT);
        if (n > 0)
            buf_put(ret, piece, (size_t)n);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        if (deadline_passed(deadline))
            fail_msg("the server does not close");
    }
    buf_put_u8(ret, 0);
}

/* Sends the text as a request and returns the response. */
static struct buf ask(const struct pages *p, const char *request)
{
    struct buf answer = {0};
    auto_close int fd = dial(p);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    read_all(fd, &answer);
    return answer;
}

static void expect(const struct pages *p, const char *request, const char *status, const char *body)
{
    struct buf b = ask(p, request);
    const char *text = (const char *)b.data, *end = strstr(text, "\r\n\r\n");
    if (strncmp(text, status, strlen(status)) != 0 || !end || strcmp(end + 4, body) != 0)
        fail_msg("want %s, \"%s\":\n%s", status, body, text);
    buf_fini(&b);
}

#define END " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"

static void test_pages(void **state)
{
    struct pages *p = start("127.0.0.1");
    ready = 0;
    expect(p, "GET /readyz" END, "HTTP/1.1 503", "not yet\n");
    ready = 1;
    expect(p, "GET /readyz" END, "HTTP/1.1 200", "ready\n");
    expect(p, "GET /readyz?verbose=1" END, "HTTP/1.1 200", "ready\n");
    expect(p, "HEAD /readyz" END, "HTTP/1.1 200", "");
    expect(p, "GET /none" END, "HTTP/1.1 404", "no such page\n");
    expect(p, "GET /readyz/" END, "HTTP/1.1 404", "no such page\n");
    expect(p, "DELETE /readyz" END, "HTTP/1.1 405", "GET or HEAD\n");
    struct buf b = ask(p, "GET /metrics" END);
    assert_non_null(strstr((char *)b.data, "Content-Type: text/plain; version=0.0.4"));
    assert_true(b.len > 1000000);
    buf_fini(&b);
    pages_close(p);
}

static void test_strange(void **state)
{
    static char long_path[40000];
    struct pages *p = start("127.0.0.1");
    struct buf b = ask(p, "no HTTP at all\r\n\r\n");
    assert_null(strstr((char *)b.data, "200"));
    buf_fini(&b);
    memset(long_path, 'a', sizeof(long_path) - 1);
    memcpy(long_path, "GET /", 5);
    auto_close int fd = dial(p);
    send(fd, long_path, sizeof(long_path) - 1, MSG_NOSIGNAL);
    struct buf answer = {0};
    read_all(fd, &answer);
    assert_null(strstr((char *)answer.data, " 200 "));
    buf_fini(&answer);
    struct buf post = ask(p, "POST /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
                             "Connection: close\r\n\r\nabc");
    assert_non_null(strstr((char *)post.data, "405"));
    buf_fini(&post);
    pages_close(p);
}

/* More connections than the server has room for: it closes the older ones and accepts the new
 * ones. */
static void test_crowd(void **state)
{
    int fds[2 * PAGES_CONNECTIONS];
    struct pages *p = start("127.0.0.1");
    for (int i = 0; i < 2 * PAGES_CONNECTIONS; i++)
        fds[i] = dial_with(p, SOCK_NONBLOCK);
    for (int i = 0; i < 20; i++)
        loop_once(&loop, 5);
    for (int i = 0; i < 2 * PAGES_CONNECTIONS; i++)
        close(fds[i]);
    ready = 1;
    expect(p, "GET /readyz" END, "HTTP/1.1 200", "ready\n");
    int idle = dial(p); /* this connection is open while the server closes */
    loop_once(&loop, 5);
    pages_close(p);
    close(idle);
}

static void test_all_addresses(void **state)
{
    struct pages *p = start(NULL);
    struct err err = {0};
    struct pages *second;
    expect(p, "HEAD /readyz" END, "HTTP/1.1 200", "");
    struct pages_config config = {.loop = &loop, .address = "", .port = pages_port(p)};
    assert_int_equal(pages_open(&second, &config, &err), -EADDRINUSE);
    assert_non_null(strstr(err.msg, "listen on all addresses port "));
    pages_close(p);
}

static void test_parse(void **state)
{
    static const struct {
        const char *text, *address;
        int port;
    } good[] = {{"9090", "", 9090},
                {":9090", "", 9090},
                {"0", "", 0},
                {"127.0.0.1:1", "127.0.0.1", 1},
                {"[::1]:65535", "::1", 65535},
                {"::1:80", "::1", 80}};
    static const char *const bad[] = {"",         "x",       "65536",  "9090x",         "-1",
                                      "1.2.3:80", "host:80", "[::1]:", "127.0.0.1:+80", "[]:80",
                                      "[::1:80"};
    char address[64];
    struct err err;
    int port;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_int_equal(pages_parse(good[i].text, address, sizeof(address), &port, &err), 0);
        assert_string_equal(address, good[i].address);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (pages_parse(bad[i], address, sizeof(address), &port, &err) != -EINVAL)
            fail_msg("the address \"%s\" was accepted", bad[i]);
    }
}

static int setup(void **state)
{
    return loop_init(&loop);
}

static int teardown(void **state)
{
    loop_fini(&loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_strange, setup, teardown),
        cmocka_unit_test_setup_teardown(test_crowd, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_addresses, setup, teardown),
        cmocka_unit_test(test_parse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
