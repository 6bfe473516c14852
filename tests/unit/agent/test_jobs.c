/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/jobs: names of programs, the file of a job, which private directories are jobs,
 * and names that are in use.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/jobs.h"
#include "core/base/cleanup.h"

static char base[64];

static int setup(void **state)
{
    (void)state;
    snprintf(base, sizeof(base), "/tmp/hvd-test-jobs-XXXXXX");
    if (!mkdtemp(base))
        return -1;
    setenv("HVD_RUN_DIR", base, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(base);
}

/* Makes the private directory of an hvdrun, with a socket in it. alive: this process listens on the
 * socket. Returns the socket. */
static int put_job(const char *dir, const char *name, int64_t started, bool alive)
{
    struct job_entry entry = {.pid = 42, .started = started};
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct err err = {0};
    snprintf(entry.dir, sizeof(entry.dir), "%s/%s", base, dir);
    snprintf(entry.name, sizeof(entry.name), "%s", name);
    snprintf(entry.command, sizeof(entry.command), "python3 \"a\\b\" \xff");
    assert_int_equal(mkdir(entry.dir, 0700), 0);
    if (jobs_publish(&entry, &err) < 0)
        fail_msg("%s", err.msg);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s/sock", base, dir);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    if (alive)
        assert_int_equal(listen(fd, 4), 0);
    return fd;
}

static void drop_job(const char *dir, int fd)
{
    char path[128];
    close(fd);
    snprintf(path, sizeof(path), "%s/%s", base, dir);
    jobs_remove(path);
    assert_int_equal(access(path, F_OK), -1);
}

static void test_program(void **state)
{
    static const struct {
        const char *words[6], *name;
    } cases[] = {
        {{"./train"}, "train"},
        {{"/usr/bin/python3", "-u", "src/train.py", "x"}, "train"},
        {{"python3.11", "-m", "pkg.main"}, "pkg.main"},
        {{"python3", "-c", "print(1)"}, "python3"},
        {{"python3"}, "python3"},
        {{"env", "A=1", "python3", "a.py"}, "a"},
        {{"sh", "-c", "./train"}, "sh"},
        {{"bash", "run.sh"}, "run"},
        {{"shell"}, "shell"},
        {{"a b\n\033[1m"}, "a-b---1m"},
        {{"-x"}, "job"},
        {{".hidden"}, ".hidden"},
        {{"dir/"}, "dir-"},
        {{""}, "job"},
    };
    char name[64];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        jobs_program((char *const *)cases[i].words, name, sizeof(name));
        assert_string_equal(name, cases[i].name);
    }
    const char *longer[] = {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                            NULL};
    jobs_program((char *const *)longer, name, sizeof(name));
    assert_int_equal(strlen(name), 40);
    jobs_program((char *const *)longer, name, 8);
    assert_string_equal(name, "aaaaaaa");
}

static void test_entry(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"name\": \"\", \"pid\": 1, \"started\": 1, \"command\": \"x\"}",
        "{\"name\": 5, \"pid\": 1, \"started\": 1, \"command\": \"x\"}",
        "{\"name\": \"a\", \"pid\": \"1\", \"started\": 1, \"command\": \"x\"}",
    };
    const char *good = "{\"name\": \"a\", \"pid\": 7, \"started\": 1700000000000, \"command\": \"x "
                       "y\", \"new\": 1}";
    struct job_entry e = {0};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = {0};
        assert_int_equal(jobs_entry_read(bad[i], strlen(bad[i]), &e, &err), -EINVAL);
        assert_true(err.msg[0]);
    }
    assert_int_equal(jobs_entry_read(good, strlen(good), &e, NULL), 0);
    assert_string_equal(e.name, "a");
    assert_string_equal(e.command, "x y");
    assert_true(e.started == 1700000000000);
    assert_int_equal(e.pid, 7);
    good = "{\"name\": \"a\", \"pid\": 7, \"started\": 1, \"command\": \"sh\\nx\\u001b[2J\"}";
    assert_int_equal(jobs_entry_read(good, strlen(good), &e, NULL), 0);
    assert_string_equal(e.command, "sh x [2J");
    assert_int_equal(e.started, 1);
}

static void test_find(void **state)
{
    struct jobs jobs;
    (void)state;
    int a = put_job("hvdrun-aaaaaa", "second", 2000, true);
    int b = put_job("hvdrun-bbbbbb", "first", 1000, true);
    int c = put_job("hvdrun-cccccc", "dead", 3000, false);
    int d = put_job("another", "no-job", 3000, true);
    char bare[128], file[128];
    snprintf(bare, sizeof(bare), "%s/hvdrun-dddddd", base); /* an hvdrun that is still starting */
    assert_int_equal(mkdir(bare, 0700), 0);
    snprintf(file, sizeof(file), "%s/hvdrun-eeeeee", base); /* a symbolic link is not followed */
    assert_int_equal(symlink("hvdrun-aaaaaa", file), 0);
    assert_int_equal(jobs_find(&jobs, NULL), 0);
    assert_int_equal(jobs.n, 3);
    assert_string_equal(jobs.list[0].name, "first");
    assert_string_equal(jobs.list[1].name, "second");
    assert_string_equal(jobs.list[1].command, "python3 \"a\\b\" ?");
    assert_true(jobs.list[2].gone);
    assert_false(jobs.list[0].gone);
    assert_ptr_equal(jobs_get(&jobs, "second"), &jobs.list[1]);
    assert_null(jobs_get(&jobs, "dead"));
    assert_null(jobs_get(&jobs, "no-job"));
    jobs_fini(&jobs);
    unlink(file);
    rmdir(bare);
    drop_job("hvdrun-aaaaaa", a);
    drop_job("hvdrun-bbbbbb", b);
    drop_job("hvdrun-cccccc", c);
    drop_job("another", d);
}

/* A directory of another user is counted and not read. */
static void test_others(void **state)
{
    struct jobs jobs;
    char path[128];
    (void)state;
    if (geteuid() != 0) {
        print_message("SKIP: agent/jobs/others: root: makes a directory of another user\n");
        return;
    }
    int fd = put_job("hvdrun-ffffff", "theirs", 1000, true);
    snprintf(path, sizeof(path), "%s/hvdrun-ffffff", base);
    assert_int_equal(jobs_find(&jobs, NULL), 0);
    int before = jobs.others;
    jobs_fini(&jobs);
    assert_int_equal(chown(path, 65534, 65534), 0);
    assert_int_equal(jobs_find(&jobs, NULL), 0);
    assert_int_equal(jobs.others, before + 1);
    assert_null(jobs_get(&jobs, "theirs"));
    jobs_fini(&jobs);
    drop_job("hvdrun-ffffff", fd);
}

static int claim(const char *said, struct job_entry *e, struct err *err)
{
    char *argv[] = {"xyzzy.py", NULL};
    auto_close int lock = -1;
    int rc = jobs_claim(e, base, said, argv, &lock, err);
    assert_true(rc < 0 || lock >= 0);
    return rc;
}

static void test_claim(void **state)
{
    struct job_entry e = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(claim(NULL, &e, &err), 0);
    assert_string_equal(e.name, "xyzzy-1");
    int one = put_job("hvdrun-aaaaaa", "xyzzy-1", 1, true);
    int two =
        put_job("hvdrun-bbbbbb", "xyzzy-2", 1, false); /* its hvdrun has ended: the name is free */
    int three = put_job("hvdrun-cccccc", "xyzzy-3", 1, true);
    assert_int_equal(claim(NULL, &e, &err), 0);
    assert_string_equal(e.name, "xyzzy-2");
    assert_int_equal(claim("xyzzy-2", &e, &err), 0);
    assert_int_equal(claim("mine", &e, &err), 0);
    assert_string_equal(e.name, "mine");
    assert_int_equal(claim("xyzzy-3", &e, &err), -EEXIST);
    assert_non_null(strstr(err.msg, "there is a job xyzzy-3 already (hvdrun 42)"));
    drop_job("hvdrun-aaaaaa", one);
    drop_job("hvdrun-bbbbbb", two);
    drop_job("hvdrun-cccccc", three);
}

/* The directory in which hvdrun creates its private directories, and the directories in which it
 * looks for jobs. */
static void test_places(void **state)
{
    struct jobs jobs;
    char sub[96];
    (void)state;
    assert_string_equal(jobs_base(), base);
    snprintf(sub, sizeof(sub), "%s/none", base);
    setenv("HVD_RUN_DIR", sub, 1);
    assert_null(jobs_base());
    unsetenv("HVD_RUN_DIR");
    setenv("XDG_RUNTIME_DIR", sub, 1);
    setenv("TMPDIR", base, 1);
    assert_string_equal(jobs_base(), base);
    setenv("XDG_RUNTIME_DIR", base, 1);
    setenv("TMPDIR", "relative", 1);
    assert_string_equal(jobs_base(), base);
    setenv("TMPDIR", base, 1); /* two variables name the same directory: each job is listed once */
    int fd = put_job("hvdrun-aaaaaa", "twice", 1, true), n = 0;
    assert_int_equal(jobs_find(&jobs, NULL), 0);
    for (int i = 0; i < jobs.n; i++)
        n += strncmp(jobs.list[i].dir, base, strlen(base)) == 0;
    assert_int_equal(n, 1);
    jobs_fini(&jobs);
    drop_job("hvdrun-aaaaaa", fd);
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("TMPDIR");
    setenv("HVD_RUN_DIR", base, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_program), cmocka_unit_test(test_entry), cmocka_unit_test(test_find),
        cmocka_unit_test(test_others),  cmocka_unit_test(test_claim), cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
