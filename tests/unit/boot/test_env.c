/* SPDX-License-Identifier: Apache-2.0
 *
 * test_env: ranks started by hand meet at HVD_RENDEZVOUS: with a key, without one, with wrong keys,
 * with missing ranks, with a port in use, and with connections of strangers. Ranks are forked
 * children that exit with a code; the parent asserts.
 *
 * takes: 11 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/boot/boot.h"
#include "tests/harness/port.h"

#define MAX_RANKS 40

struct world {
    int size, port;
    char key_file[64];
    pid_t pids[MAX_RANKS];
    int out[MAX_RANKS]; /* read ends of the ranks' pipes, on which they send their answers */
};

struct answer {
    int rc;
    bool has_key;
    uint64_t refused;
    uint8_t key[BOOT_KEY_SIZE];
    char text[1024];
};

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
}

static void world_init(struct world *w, int size, const char *key)
{
    *w = (struct world){.size = size, .port = port_free()};
    snprintf(w->key_file, sizeof(w->key_file), "/tmp/hvd-test-key-XXXXXX");
    int fd = mkstemp(w->key_file);
    assert_true(fd >= 0);
    close(fd);
    write_file(w->key_file, key, strlen(key));
}

static void world_fini(struct world *w)
{
    unlink(w->key_file);
}

static const char hex_key[] = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n";
static const char other_key[] = "another key that has at least 32 bytes";

/* Returns the size of a rank's card: 0, 7, the largest, 21, 28, ... bytes. */
static size_t card_size(int rank)
{
    return rank == 2 ? BOOT_CARD_MAX : (size_t)rank * 7 % 100;
}

static bool cards_ok(const struct boot *boot)
{
    for (int r = 0; r < boot->size; r++) {
        const struct buf *card = &boot->cards[r];
        if (card->len != card_size(r))
            return false;
        for (size_t i = 0; i < card->len; i++) {
            if (card->data[i] != (uint8_t)(r + (int)i))
                return false;
        }
    }
    return true;
}

/* Runs one rank's bootstrap in a child, with the environment as it is. */
static void be_rank(int rank, int timeout_ms, struct answer *answer)
{
    struct boot boot;
    struct err err = {0};
    struct buf card = {0};
    for (size_t i = 0; i < card_size(rank); i++)
        buf_put_u8(&card, (uint8_t)(rank + (int)i));
    log_set_level(LOG_ERROR);
    answer->rc = boot_open(&boot, &err);
    if (answer->rc == 0)
        answer->rc = boot_exchange(&boot, &card, deadline_in_ms((uint64_t)timeout_ms), &err);
    answer->has_key = boot.has_key;
    answer->refused = boot.refused;
    memcpy(answer->key, boot.key, sizeof(answer->key));
    snprintf(answer->text, sizeof(answer->text), "%s", err.msg);
    if (answer->rc == 0 && (!cards_ok(&boot) || boot.rank != rank || boot.epoch != 1))
        answer->rc = -EBADMSG;
    boot_fini(&boot);
    buf_fini(&card);
}

/* Starts one rank; size, key file and timeout may differ from the world's. */
static void start(struct world *w, int slot, int rank, int size, const char *key_file,
                  int timeout_ms)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char text[64];
        struct answer answer = {0};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        snprintf(text, sizeof(text), "%d", rank);
        setenv("HVD_RANK", text, 1);
        snprintf(text, sizeof(text), "%d", size);
        setenv("HVD_SIZE", text, 1);
        snprintf(text, sizeof(text), "127.0.0.1:%d", w->port);
        setenv("HVD_RENDEZVOUS", text, 0);
        if (key_file)
            setenv("HVD_KEY_FILE", key_file, 1);
        be_rank(rank, timeout_ms, &answer);
        _exit(write(fds[1], &answer, sizeof(answer)) == (ssize_t)sizeof(answer) ? 0 : 1);
    }
    close(fds[1]);
    w->pids[slot] = pid;
    w->out[slot] = fds[0];
}

static struct answer finish(struct world *w, int slot)
{
    struct answer answer = {.rc = -EIO};
    int status = 0;
    ssize_t got = read(w->out[slot], &answer, sizeof(answer));
    close(w->out[slot]);
    assert_int_equal(waitpid(w->pids[slot], &status, 0), w->pids[slot]);
    assert_int_equal(got, sizeof(answer));
    assert_int_equal(status, 0);
    return answer;
}

static void meet(int size, bool with_key)
{
    struct world w;
    struct answer first = {0};
    world_init(&w, size, hex_key);
    for (int r = size - 1; r >= 0; r--)
        start(&w, r, r, size, with_key ? w.key_file : NULL, 20000);
    for (int r = 0; r < size; r++) {
        struct answer a = finish(&w, r);
        if (r == 0)
            first = a;
        if (a.rc)
            print_error("rank %d: %s\n", r, a.text);
        assert_int_equal(a.rc, 0);
        assert_int_equal(a.has_key, with_key);
        assert_memory_equal(a.key, first.key, sizeof(a.key));
    }
    world_fini(&w);
}

static void test_worlds(void **state)
{
    (void)state;
    const int sizes[] = {2, 3, 8, 40};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        meet(sizes[i], true);
}

static void test_without_key_on_loopback(void **state)
{
    (void)state;
    meet(3, false);
}

static void test_fresh_key_each_time(void **state)
{
    (void)state;
    struct world w;
    struct answer answers[2];
    world_init(&w, 2, hex_key);
    for (int round = 0; round < 2; round++) {
        for (int r = 0; r < 2; r++)
            start(&w, r, r, 2, w.key_file, 20000);
        answers[round] = finish(&w, 0);
        assert_int_equal(answers[round].rc, 0);
        assert_int_equal(finish(&w, 1).rc, 0);
    }
    assert_memory_not_equal(answers[0].key, answers[1].key, BOOT_KEY_SIZE);
    world_fini(&w);
}

static void test_missing_ranks_are_named(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 7, hex_key);
    start(&w, 0, 0, 7, w.key_file, 5000);
    start(&w, 3, 3, 7, w.key_file, 5000);
    for (int r = 0; r <= 3; r += 3) {
        struct answer a = finish(&w, r);
        assert_true(a.rc == -ETIMEDOUT || a.rc == -ECONNREFUSED);
        assert_non_null(strstr(a.text, "ranks 1-2, 4-6 (5 of 7 did not come)"));
    }
    world_fini(&w);
}

static void test_missing_root(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 2, hex_key);
    start(&w, 1, 1, 2, w.key_file, 300);
    struct answer a = finish(&w, 1);
    assert_int_equal(a.rc, -ETIMEDOUT);
    assert_non_null(strstr(a.text, "rank 0 at 127.0.0.1"));
    world_fini(&w);
}

static void test_wrong_key(void **state)
{
    (void)state;
    struct world w, stranger;
    world_init(&w, 3, hex_key);
    world_init(&stranger, 3, other_key);
    start(&w, 0, 0, 3, w.key_file, 20000);
    start(&w, 3, 1, 3, stranger.key_file, 20000);
    struct answer a;
    if ((a = finish(&w, 3)).rc != -EACCES)
        print_error("%s\n", a.text);
    assert_int_equal(a.rc, -EACCES);
    assert_non_null(strstr(a.text, "another key"));
    start(&w, 1, 1, 3, w.key_file, 20000);
    start(&w, 2, 2, 3, w.key_file, 20000);
    a = finish(&w, 0);
    assert_int_equal(a.rc, 0);
    assert_true(a.refused >= 1);
    assert_int_equal(finish(&w, 1).rc, 0);
    assert_int_equal(finish(&w, 2).rc, 0);
    world_fini(&w);
    world_fini(&stranger);
}

static void test_key_on_one_side_only(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 2, hex_key);
    start(&w, 0, 0, 2, w.key_file, 3000);
    start(&w, 1, 1, 2, NULL, 20000);
    assert_int_equal(finish(&w, 1).rc, -EACCES);
    assert_int_equal(finish(&w, 0).rc, -ETIMEDOUT);
    world_fini(&w);
}

static void test_twice_the_same_rank(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 3, hex_key);
    start(&w, 0, 0, 3, w.key_file, 20000);
    start(&w, 1, 1, 3, w.key_file, 20000);
    start(&w, 3, 1, 3, w.key_file, 20000);
    /* Two ranks claim the same number: the second one is refused. */
    struct pollfd both[2] = {{.fd = w.out[1], .events = POLLIN},
                             {.fd = w.out[3], .events = POLLIN}};
    assert_int_equal(poll(both, 2, 20000), 1);
    int second = both[0].revents ? 1 : 3;
    struct answer a = finish(&w, second);
    assert_int_equal(a.rc, -ECONNREFUSED);
    assert_non_null(strstr(a.text, "rank 1 is here already"));
    if (second == 1) {
        w.pids[1] = w.pids[3];
        w.out[1] = w.out[3];
    }
    start(&w, 4, 2, 5, w.key_file, 20000);
    a = finish(&w, 4);
    assert_int_equal(a.rc, -ECONNREFUSED);
    assert_non_null(strstr(a.text, "this job has 3 ranks, rank 2 was told 5"));
    start(&w, 2, 2, 3, w.key_file, 20000);
    for (int r = 0; r < 3; r++)
        assert_int_equal(finish(&w, r).rc, 0);
    world_fini(&w);
}

/* A rank is killed and started again while the others still wait: rank 0 accepts it again. */
static void test_rank_comes_back(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 3, hex_key);
    start(&w, 0, 0, 3, w.key_file, 20000);
    start(&w, 1, 1, 3, w.key_file, 20000);
    usleep(300000);
    kill(w.pids[1], SIGKILL);
    assert_int_equal(waitpid(w.pids[1], NULL, 0), w.pids[1]);
    close(w.out[1]);
    start(&w, 1, 1, 3, w.key_file, 20000);
    start(&w, 2, 2, 3, w.key_file, 20000);
    for (int r = 0; r < 3; r++)
        assert_int_equal(finish(&w, r).rc, 0);
    world_fini(&w);
}

static void test_port_taken(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 2, hex_key);
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)w.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
    assert_int_equal(listen(fd, 5), 0);
    start(&w, 0, 0, 2, w.key_file, 20000);
    struct answer a = finish(&w, 0);
    assert_int_equal(a.rc, -EADDRINUSE);
    assert_non_null(strstr(a.text, "another job"));
    close(fd);
    world_fini(&w);
}

static int call(int port)
{
    struct sockaddr_in in = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 2000; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&in, sizeof(in)) == 0)
            return fd;
        close(fd);
        usleep(10000);
    }
    return -1;
}

/* HTTP clients, port scanners and silent connections, more than rank 0 accepts at a time. */
static void test_strangers(void **state)
{
    (void)state;
    enum { SILENT = 90 };
    struct world w;
    int silent[SILENT];
    const char *const lines[] = {"GET / HTTP/1.0\r\n\r\n", "", "HVDB",
                                 "HVDBxxxxxxxxxxxxxxxxxxxxxxxxx"};
    world_init(&w, 2, hex_key);
    start(&w, 0, 0, 2, w.key_file, 20000);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        int fd = call(w.port);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, lines[i], strlen(lines[i])), strlen(lines[i]));
        close(fd);
    }
    for (int i = 0; i < SILENT; i++)
        assert_true((silent[i] = call(w.port)) >= 0);
    start(&w, 1, 1, 2, w.key_file, 20000);
    struct answer a = finish(&w, 0);
    assert_int_equal(a.rc, 0);
    assert_true(a.refused >= 4 + SILENT - 64);
    assert_int_equal(finish(&w, 1).rc, 0);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    world_fini(&w);
}

static void clear(void)
{
    unsetenv("HVD_RANK");
    unsetenv("HVD_SIZE");
    unsetenv("HVD_RENDEZVOUS");
    unsetenv("HVD_KEY_FILE");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    alarm(290);
    clear();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds),
        cmocka_unit_test(test_without_key_on_loopback),
        cmocka_unit_test(test_fresh_key_each_time),
        cmocka_unit_test(test_missing_ranks_are_named),
        cmocka_unit_test(test_missing_root),
        cmocka_unit_test(test_wrong_key),
        cmocka_unit_test(test_key_on_one_side_only),
        cmocka_unit_test(test_twice_the_same_rank),
        cmocka_unit_test(test_rank_comes_back),
        cmocka_unit_test(test_port_taken),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
