/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/discovery: valid output of a discovery script, and scripts that fail, hang, print
 * without end or leave a child behind, at the first run and while a job runs.
 *
 * takes: 30 s, waiting
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/discovery.h"
#include "core/base/clock.h"

static char dir[64], script[96];

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hvd-test-discovery-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(script, sizeof(script), "%s/hosts", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(script);
    return rmdir(dir);
}

/* Replaces the script by rename(2), because the previous one may be running or about to start. */
static void put_script(const char *body)
{
    char fresh[112];
    snprintf(fresh, sizeof(fresh), "%s.new", script);
    FILE *f = fopen(fresh, "we");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\n%s\n", body);
    fclose(f);
    assert_int_equal(chmod(fresh, 0755), 0);
    assert_int_equal(rename(fresh, script), 0);
}

static int parse(const char *text, struct hosts *hosts, struct err *err)
{
    /* Copies the text without its NUL, as it comes from a pipe, so that ASan sees a read past
     * the end. */
    size_t len = strlen(text);
    char *bare = malloc(len + !len);
    assert_non_null(bare);
    memcpy(bare, text, len);
    int rc = discovery_parse(bare, len, 3, hosts, err);
    free(bare);
    return rc;
}

static void test_parse(void **state)
{
    struct hosts h = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(parse("a\nb:2\r\n\n  # none\n\t c:4 # four\n[fd00::1]:5\nd", &h, &err), 0);
    assert_int_equal(h.n, 5);
    assert_string_equal(h.list[0].name, "a");
    assert_int_equal(h.list[0].slots, 3);
    assert_int_equal(h.list[1].slots, 2);
    assert_int_equal(h.list[2].slots, 4);
    assert_string_equal(h.list[3].name, "fd00::1");
    assert_int_equal(h.list[3].slots, 5);
    assert_int_equal(h.list[4].slots, 3);
    hosts_fini(&h);
}

static void test_garbage(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "it names no host"},
        {"\n#a\n", "it names no host"},
        {"a\nb b\n", "line 2: \"b b\": not a host name"},
        {"a\n\nb:0", "line 3: \"0\": want a number of slots from 1"},
        {"a:x\n", "line 1: \"x\": want a number of slots"},
        {"a:\n", "line 1: \"\": want a number of slots"},
        {":3\n", "line 1: a host without a name"},
        {"-oProxyCommand=x\n", "a host name cannot start with -"},
        {"Traceback (most recent call last):\n", "line 1: "},
        {"a:99999999999999999999\n", "want a number of slots"},
        {"a:65536\na:1\n", "more than 65536 slots"},
    };
    struct hosts h = {0};
    (void)state;
    assert_int_equal(parse("kept:2", &h, NULL), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct err err = {0};
        assert_int_equal(parse(cases[i].text, &h, &err), -EINVAL);
        if (!strstr(err.msg, cases[i].words))
            fail_msg("\"%s\": %s", cases[i].text, err.msg);
    }
    assert_int_equal(discovery_parse("a\0b", 3, 1, &h, NULL), -EINVAL);
    assert_string_equal(h.list[0].name, "kept");
    hosts_fini(&h);
}

static void first_fails(const char *body, const char *words)
{
    struct hosts h = {0};
    struct err err = {0};
    put_script(body);
    uint64_t begin = clock_ns();
    int rc = discovery_first(script, 1, &h, &err);
    if (rc == 0 || !strstr(err.msg, words) || !strstr(err.msg, script))
        fail_msg("%s: %d %s", body, rc, err.msg);
    assert_true(clock_ns() - begin < 30 * CLOCK_S);
    hosts_fini(&h);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static void test_first(void **state)
{
    struct hosts h = {0};
    struct err err = {0};
    (void)state;
    put_script("echo one; echo two:2");
    if (discovery_first(script, 4, &h, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.list[0].slots, 4);
    /* The script has exited, but its child keeps the pipe open: discovery does not wait for the
     * child. */
    put_script("sleep 60 & echo three; echo $! >\"$0.pid\"");
    uint64_t begin = clock_ns();
    assert_int_equal(discovery_first(script, 4, &h, &err), 0);
    assert_true(clock_ns() - begin < 9 * CLOCK_S);
    assert_string_equal(h.list[0].name, "three");
    char path[112];
    int pid = 0;
    snprintf(path, sizeof(path), "%s.pid", script);
    FILE *f = fopen(path, "re");
    assert_true(f && fscanf(f, "%d", &pid) == 1);
    fclose(f);
    unlink(path);
    kill(pid, SIGKILL);
    hosts_fini(&h);
    first_fails("echo a; exit 3", "exit code 3");
    first_fails("kill -9 $$", "ended by signal 9");
    first_fails("echo 'a b'", "line 1: \"a b\": not a host name");
    first_fails("true", "it names no host");
    first_fails("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "it prints more than");
    first_fails("exec sleep 600", "it did not end within 10 s: killed");
    unlink(script);
    assert_int_equal(discovery_first(script, 1, &h, &err), -EIO);
    assert_non_null(strstr(err.msg, "cannot be run"));
}

/* ---- while a job runs ----------------------------------------------------------------------- */

static struct loop loop;
static struct discovery d;
static int changes, problems;
static struct hosts last;
static char problem[1024];

static void on_discovery(void *arg, const struct hosts *hosts, const char *text)
{
    assert_ptr_equal(arg, &loop);
    assert_true(!hosts != !text);
    if (text) {
        problems++;
        snprintf(problem, sizeof(problem), "%s", text);
        return;
    }
    changes++;
    last.n = hosts->n;
    last.list = hosts->list;
}

/* One turn of the loop; this test reaps the children, as the agent does. */
static void turn(void)
{
    int status;
    loop_once(&loop, 20);
    pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid > 0)
        assert_true(discovery_reap(&d, pid, status));
}

static void watch_for(uint64_t ms)
{
    uint64_t deadline = deadline_in_ms(ms);
    while (!deadline_passed(deadline))
        turn();
}

static void until(const int *count, int want)
{
    uint64_t deadline = deadline_in_ms(60000);
    while (*count < want && !deadline_passed(deadline))
        turn();
    assert_int_equal(*count, want);
}

static void test_watch(void **state)
{
    struct hosts known = {0};
    (void)state;
    changes = problems = 0;
    assert_int_equal(parse("a:2", &known, NULL), 0);
    assert_int_equal(loop_init(&loop), 0);
    put_script("echo a:2");
    assert_int_equal(discovery_start(&d, &loop, script, 1, &known, on_discovery, &loop), 0);
    hosts_fini(&known);
    put_script("echo a:2; echo b");
    until(&changes, 1);
    assert_int_equal(last.n, 2);
    assert_string_equal(last.list[1].name, "b");
    put_script("echo b; echo a:2"); /* the same hosts in another order are no change */
    watch_for(1500);
    put_script("exit 1");
    until(&problems, 1);
    assert_non_null(strstr(problem, "exit code 1"));
    watch_for(2500);
    assert_int_equal(problems, 1); /* a lasting problem is reported once */
    put_script("echo a:4");
    until(&changes, 2);
    assert_int_equal(last.list[0].slots, 4);
    put_script("echo 'oops!'");
    until(&problems, 2); /* a new report, because the script succeeded in between */
    assert_non_null(strstr(problem, "line 1: "));
    assert_int_equal(changes, 2);
    put_script("echo a:5");
    until(&changes, 3);
    put_script("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    until(&problems, 3);
    assert_non_null(strstr(problem, "prints more than"));
    put_script("exec sleep 600");
    uint64_t begin = clock_ns();
    while (!d.pid && clock_ns() - begin < 5 * CLOCK_S)
        loop_once(&loop, 20);
    assert_false(discovery_reap(&d, 1, 0)); /* process 1 is not the script */
    discovery_stop(&d);                     /* stops discovery while a script runs */
    assert_true(waitpid(-1, NULL, 0) > 0);
    discovery_stop(&d);
    loop_fini(&loop);
}

/* A script that hangs is killed after ten seconds. This is reported once, and the script runs
 * again later. */
static void test_hangs(void **state)
{
    struct hosts known = {0};
    (void)state;
    changes = problems = 0;
    assert_int_equal(parse("a:2", &known, NULL), 0);
    assert_int_equal(loop_init(&loop), 0);
    put_script("exec sleep 600");
    assert_int_equal(discovery_start(&d, &loop, script, 1, &known, on_discovery, &loop), 0);
    hosts_fini(&known);
    until(&problems, 1);
    assert_non_null(strstr(problem, "did not end within 10 s"));
    put_script("echo b:1");
    until(&changes, 1);
    discovery_stop(&d);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    loop_fini(&loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test_setup_teardown(test_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watch, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hangs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
