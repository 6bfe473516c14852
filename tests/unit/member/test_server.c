/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/server and member/client together, with member/authority: over a Unix socket and
 * over TLS, long polls, tokens, the wrong CA, a server that closes. One loop runs both ends.
 *
 * takes: 8 s, waiting
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/member/authority.h"
#include "core/member/client.h"
#include "core/member/server.h"

static struct loop loop;
static char dir[64], path[96], url[96];
static struct authority authority;
static bool ready; /* what a long poll waits for */
static int handled;

static int handle(void *arg, const struct server_request *q, struct server_reply *ret_reply)
{
    (void)arg;
    handled++;
    if (strcmp(q->path, "/wait") == 0 && !ready && !q->last)
        return 1;
    ret_reply->status = strcmp(q->path, "/wait") == 0 && !ready ? 204 : 200;
    if (strcmp(q->path, "/busy") == 0)
        ret_reply->status = 503;
    if (ret_reply->status == 200 &&
        asprintf(&ret_reply->body, "%s %s %s %llu %zu", q->method, q->path, q->agent,
                 (unsigned long long)q->after, q->len) < 0)
        ret_reply->body = NULL;
    return 0;
}

struct heard {
    bool done;
    long status;
    char body[256], text[256];
};

static void on_done(void *arg, const struct client_answer *answer)
{
    struct heard *h = arg;
    h->done = true;
    h->status = answer->status;
    snprintf(h->body, sizeof(h->body), "%s", answer->body);
    snprintf(h->text, sizeof(h->text), "%s", answer->text);
}

static void until(const bool *done)
{
    uint64_t deadline = deadline_in_ms(60000);
    while (!*done && !deadline_passed(deadline))
        loop_once(&loop, 50);
    assert_true(*done);
}

static struct heard ask(struct client *c, const char *what, const char *body)
{
    struct heard h = {0};
    assert_int_equal(client_send(c, what, body, 5000, on_done, &h, NULL), 0);
    until(&h.done);
    return h;
}

static struct server *serve(bool tls)
{
    struct server *s;
    struct server_config config = {.loop = &loop, .token = "secret", .handle = handle};
    struct err err = {0};
    if (tls) {
        config.address = "127.0.0.1";
        config.cert_pem = authority.cert_pem;
        config.key_pem = authority.key_pem;
    } else {
        config.unix_path = path;
    }
    if (server_open(&s, &config, &err) < 0)
        fail_msg("%s", err.msg);
    snprintf(url, sizeof(url), "https://127.0.0.1:%d", server_port(s));
    return s;
}

static struct client *visit(bool tls, const char *token, const char *ca)
{
    struct client *c;
    struct client_config config = {.loop = &loop,
                                   .url = tls ? url : "http://x",
                                   .unix_path = tls ? NULL : path,
                                   .ca_pem = ca,
                                   .token = token};
    assert_int_equal(client_open(&c, &config, NULL), 0);
    return c;
}

static int setup(void **state)
{
    const char *addresses[] = {"127.0.0.1", "::1"};
    struct err err = {0};
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hvd-test-server-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/sock", dir);
    ready = false;
    if (authority_create(&authority, "test", addresses, 2, &err) < 0)
        fail_msg("%s", err.msg);
    return loop_init(&loop);
}

static int teardown(void **state)
{
    (void)state;
    loop_fini(&loop);
    authority_fini(&authority);
    return rmdir(dir);
}

static void exchange(bool tls)
{
    struct server *s = serve(tls);
    struct client *c = visit(tls, "secret", tls ? authority.ca_pem : NULL);
    struct heard h = ask(c, "/a?agent=x&after=12", NULL);
    assert_int_equal(h.status, 200);
    assert_string_equal(h.body, "GET /a x 12 0");
    size_t n = 300000;
    char *big = malloc(n + 1);
    memset(big, 'y', n);
    big[n] = '\0';
    h = ask(c, "/b", big);
    free(big);
    assert_string_equal(h.body, "POST /b  0 300000");
    client_close(c);
    server_close(s);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_unix(void **state)
{
    (void)state;
    exchange(false);
}

static void test_tls(void **state)
{
    (void)state;
    exchange(true);
}

static void test_unix_is_private(void **state)
{
    struct stat st;
    struct server *s = serve(false);
    (void)state;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    server_close(s);
}

static void test_token(void **state)
{
    struct server *s = serve(false);
    const char *wrong[] = {"", "secre", "secret1", "Secret"};
    (void)state;
    handled = 0;
    for (size_t i = 0; i < 4; i++) {
        struct client *c = visit(false, wrong[i], NULL);
        assert_int_equal(ask(c, "/a", "{}").status, 401);
        client_close(c);
    }
    assert_int_equal(handled, 0);
    assert_int_equal(server_refused(s), 4);
    server_close(s);
}

/* A certificate of another job's CA is refused, and nothing is sent to that server. */
static void test_wrong_ca(void **state)
{
    struct authority other;
    const char *addresses[] = {"127.0.0.1"}, *elsewhere[] = {"10.1.2.3"};
    (void)state;
    assert_int_equal(authority_create(&other, "other", addresses, 1, NULL), 0);
    struct server *s = serve(true);
    struct client *c = visit(true, "secret", other.ca_pem);
    handled = 0;
    struct heard h = ask(c, "/a", NULL);
    assert_int_equal(h.status, 0);
    assert_int_equal(handled, 0);
    client_close(c);
    server_close(s);
    authority_fini(&other);
    /* The certificate is for another address. */
    authority_fini(&authority);
    assert_int_equal(authority_create(&authority, "test", elsewhere, 1, NULL), 0);
    s = serve(true);
    c = visit(true, "secret", authority.ca_pem);
    assert_int_equal(ask(c, "/a", NULL).status, 0);
    assert_int_equal(handled, 0);
    client_close(c);
    server_close(s);
}

static void test_long_poll(void **state)
{
    struct server *s = serve(false);
    struct client *c = visit(false, "secret", NULL);
    struct heard waits = {0}, other;
    (void)state;
    uint64_t begin = clock_ns();
    assert_int_equal(ask(c, "/wait?wait=1", NULL).status, 204);
    assert_true(clock_ns() - begin > 900 * CLOCK_MS);
    assert_int_equal(client_send(c, "/wait?wait=20", NULL, 15000, on_done, &waits, NULL), 0);
    other = ask(c, "/a", NULL); /* other requests are served meanwhile */
    assert_int_equal(other.status, 200);
    assert_false(waits.done);
    ready = true;
    server_wake(s);
    until(&waits.done);
    assert_int_equal(waits.status, 200);
    client_close(c);
    server_close(s);
}

/* A server that closes answers parked requests. After that, connections are refused. */
static void test_server_goes(void **state)
{
    struct server *s = serve(false);
    struct client *c = visit(false, "secret", NULL);
    struct heard waits = {0};
    (void)state;
    handled = 0;
    assert_int_equal(client_send(c, "/wait?wait=20", NULL, 15000, on_done, &waits, NULL), 0);
    for (int i = 0; i < 200 && !handled; i++)
        loop_once(&loop, 10);
    server_close(s);
    until(&waits.done);
    assert_true(waits.status == 503 || waits.status == 0);
    struct heard h = ask(c, "/a", NULL);
    assert_int_equal(h.status, 0);
    assert_true(strlen(h.text) > 0);
    client_close(c);
}

/* A client closes while it waits: the server drops its request and goes on. */
static void test_client_goes(void **state)
{
    struct server *s = serve(true);
    struct client *c = visit(true, "secret", authority.ca_pem);
    struct heard waits = {0};
    (void)state;
    handled = 0;
    assert_int_equal(client_send(c, "/wait?wait=1", NULL, 15000, on_done, &waits, NULL), 0);
    for (int i = 0; i < 500 && !handled; i++)
        loop_once(&loop, 10);
    client_close(c);
    c = visit(true, "secret", authority.ca_pem);
    assert_int_equal(ask(c, "/wait?wait=1", NULL).status, 204);
    assert_false(waits.done);
    client_close(c);
    server_close(s);
}

/* A client with random waits of up to a minute. */
static struct client *visit_patiently(void)
{
    struct client *c;
    struct client_config config = {
        .loop = &loop, .url = "http://x", .unix_path = path, .token = "secret", .jitter_ms = 60000};
    assert_int_equal(client_open(&c, &config, NULL), 0);
    return c;
}

static void test_client_backs_off_when_busy(void **state)
{
    struct server *s = serve(false);
    struct client *c = visit_patiently();
    uint64_t end = deadline_in_ms(2000);
    int n = 0;
    (void)state;
    for (; !deadline_passed(end); n++)
        assert_int_equal(ask(c, "/busy", NULL).status, 503);
    assert_in_range(n, 2, 40); /* each wait is random, of up to 0.2, 0.4, 0.8, 1.6 s */
    assert_int_equal(ask(c, "/a", NULL).status, 200);
    client_close(c);
    server_close(s);
}

/* It waits up to a minute, and not longer than 2 s from the time when it is in a hurry. */
static void test_client_in_a_hurry(void **state)
{
    struct client *c = visit_patiently();
    uint64_t begun = clock_ns();
    struct heard h = {0};
    (void)state;
    assert_int_equal(ask(c, "/a", NULL).status, 0); /* nobody listens */
    while (clock_ns() - begun < 1050 * CLOCK_MS)
        loop_once(&loop, 10);
    assert_int_equal(ask(c, "/a", NULL).status, 0); /* for more than a second: the next one waits */
    struct server *s = serve(false);
    assert_int_equal(client_send(c, "/a", NULL, 5000, on_done, &h, NULL), 0);
    begun = clock_ns();
    client_hurry(c);
    until(&h.done);
    assert_int_equal(h.status, 200);
    assert_true(clock_ns() - begun < 3 * CLOCK_S);
    client_close(c);
    server_close(s);
}

static int dial_from(struct server *s, uint32_t source)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr = {htonl(source)}};
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(s)),
                             .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* One handshake at a time: a client that says nothing delays clients with other addresses, and for
 * these the server is behind. Further connections of its own delay nobody but itself. */
static void test_server_is_behind(void **state)
{
    int fds[3];
    struct server *s;
    struct server_config config = {.loop = &loop,
                                   .token = "secret",
                                   .handle = handle,
                                   .address = "127.0.0.1",
                                   .cert_pem = authority.cert_pem,
                                   .key_pem = authority.key_pem,
                                   .handshakes = 1};
    (void)state;
    assert_int_equal(server_open(&s, &config, NULL), 0);
    assert_false(server_is_behind(s));
    for (int i = 0; i < 3; i++) {
        fds[i] = dial_from(s, i < 2 ? INADDR_LOOPBACK : INADDR_LOOPBACK + 1);
        struct tcp_info info;
        socklen_t len = sizeof(info);
        bool told = getsockopt(fds[i], IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
                    len > offsetof(struct tcp_info, tcpi_unacked); /* qemu-user tells an integer */
        assert_int_equal(server_is_behind(s), told);               /* it waits to be accepted */
        loop_once(&loop, 10);
        loop_once(&loop, 10);
        assert_int_equal(server_is_behind(s), i == 2);
    }
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    uint64_t end = deadline_in_ms(10000);
    while (server_is_behind(s) && !deadline_passed(end))
        loop_once(&loop, 10);
    assert_false(server_is_behind(s));
    server_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unix, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unix_is_private, setup, teardown),
        cmocka_unit_test_setup_teardown(test_token, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_ca, setup, teardown),
        cmocka_unit_test_setup_teardown(test_long_poll, setup, teardown),
        cmocka_unit_test_setup_teardown(test_server_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_client_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_client_backs_off_when_busy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_client_in_a_hurry, setup, teardown),
        cmocka_unit_test_setup_teardown(test_server_is_behind, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
