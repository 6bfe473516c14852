/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/commands (list, status, scale, drain) and agent/ask against a real server: a child
 * process plays a coordinator of core/member/server with a job of three ranks. The output of the
 * commands goes into files and is compared.
 *
 * takes: 9 s, waiting
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/commands.h"
#include "agent/jobs.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/json/json.h"
#include "core/member/server.h"

static char base[64], dir[96], said[8192], moaned[8192];
static pid_t coordinator;

/* ---- the coordinator ------------------------------------------------------------------------ */

static int np = 3, change, applied, asked; /* used in the coordinator's process only */
static bool silent;

static int error(struct server_reply *reply, int status, const char *text)
{
    reply->status = status;
    reply->body = json_error_body(text);
    return 0;
}

static int take_change(const struct server_request *q, struct server_reply *reply)
{
    auto_json json_t *j = NULL;
    int n = 0, rank = -1;
    const char *host = NULL;
    if (json_read(q->body, q->len, "the body", &j, NULL) < 0 ||
        json_expect(j, "the body", NULL, "{s?i, s?i, s?s}", "np", &n, "rank", &rank, "host",
                    &host) < 0)
        return error(reply, 400, "no JSON");
    if (strcmp(q->path, "/v1/scale") == 0 ? n < 2 || n > 8 : !host && (rank < 0 || rank > 2))
        return error(reply, 400, n ? "10 ranks are more than --max-np 8" : "there is no rank 7");
    np = n ? n : np - 1;
    change++;
    asked = 0;
    reply->status = 200;
    if (asprintf(&reply->body, "{\"change\": %d, \"np\": %d}", change, np) < 0)
        reply->body = NULL;
    return 0;
}

/* The coordinator reports a change as applied at the third status request after it. */
static int handle(void *arg, const struct server_request *q, struct server_reply *reply)
{
    (void)arg;
    if (silent)
        sleep(60);
    if (strcmp(q->method, "POST") == 0)
        return take_change(q, reply);
    if (++asked >= 3)
        applied = change;
    reply->status = 200;
    if (asprintf(
            &reply->body,
            "{\"job\": \"x\", \"size\": 3, \"np\": %d, \"elastic\": true, \"min_np\": 2, "
            "\"max_np\": 8, "
            "\"epoch\": %d, \"change\": %d, \"state\": \"%s\", \"waiting_for\": \"%s\", "
            "\"members\": [{\"rank\": 0, \"host\": \"h\", \"state\": \"active\", \"pid\": 9}]}",
            np, applied + 1, applied, applied < change ? "changing" : "running",
            applied < change ? "1 rank that starts" : "") < 0)
        reply->body = NULL;
    return 0;
}

static void on_silence(int signo)
{
    (void)signo;
    silent = true;
}

/* Exits with 1 if the server cannot be opened. */
static _Noreturn void coordinate(int ready)
{
    struct loop loop;
    struct server *s;
    char path[128];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGUSR1, on_silence);
    jobs_path(path, sizeof(path), dir, "sock");
    struct server_config config = {
        .loop = &loop, .token = "secret", .handle = handle, .unix_path = path};
    if (loop_init(&loop) < 0 || server_open(&s, &config, NULL) < 0 || write(ready, "x", 1) != 1)
        _exit(1);
    for (;;)
        loop_once(&loop, 1000);
}

static void put_token(const char *token)
{
    char path[128];
    jobs_path(path, sizeof(path), dir, "token");
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(token, f);
    fclose(f);
}

static int setup(void **state)
{
    struct job_entry entry = {.pid = 4711, .started = 1000, .name = "train-1", .command = "train"};
    int ends[2];
    char byte;
    (void)state;
    snprintf(base, sizeof(base), "/tmp/hvd-test-cmds-XXXXXX");
    if (!mkdtemp(base) || pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    setenv("HVD_RUN_DIR", base, 1);
    snprintf(dir, sizeof(dir), "%s/hvdrun-abcdef", base);
    memcpy(entry.dir, dir, sizeof(dir));
    if (mkdir(dir, 0700) < 0 || jobs_publish(&entry, NULL) < 0)
        return -1;
    put_token("secret");
    coordinator = fork();
    if (coordinator == 0)
        coordinate(ends[1]);
    close(ends[1]);
    ssize_t got = read(ends[0], &byte, 1);
    close(ends[0]);
    return coordinator > 0 && got == 1 ? 0 : -1;
}

static void end_coordinator(void)
{
    kill(coordinator, SIGKILL);
    waitpid(coordinator, NULL, 0);
    coordinator = 0;
}

static int teardown(void **state)
{
    (void)state;
    if (coordinator)
        end_coordinator();
    jobs_remove(dir);
    return rmdir(base);
}

/* ---- a command ------------------------------------------------------------------------------ */

static void slurp(int fd, char *dst, size_t size)
{
    ssize_t n = pread(fd, dst, size - 1, 0);
    dst[n > 0 ? n : 0] = '\0';
    close(fd);
}

/* Runs hvdrun with the words of line in a child. Returns its exit code; its output is then in
 * said, its errors in moaned. */
static int run(const char *line)
{
    char *copy = strdup(line), *save, *argv[16] = {0};
    FILE *out = tmpfile(), *err = tmpfile();
    int argc = 0, status = -1;
    assert_true(copy && out && err);
    for (char *w = strtok_r(copy, " ", &save); w && argc < 15; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        if (dup2(fileno(out), 1) < 0 || dup2(fileno(err), 2) < 0 || !commands_is(argv[0]))
            _exit(99);
        int code = commands_run(argc, argv);
        fflush(NULL);
        _exit(code);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    slurp(dup(fileno(out)), said, sizeof(said));
    slurp(dup(fileno(err)), moaned, sizeof(moaned));
    fclose(out);
    fclose(err);
    free(copy);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void compare(const char *line, int got, int code, const char *out, const char *err)
{
    if (got != code || (out && !strstr(said, out)) || (err && !strstr(moaned, err)) ||
        (!out && said[0]) || (!err && moaned[0]))
        fail_msg("%s: code %d\n%s---\n%s", line, got, said, moaned);
}

static void expect(const char *line, int code, const char *out, const char *err)
{
    compare(line, run(line), code, out, err);
}

/* hvdrun list waits for a job one second only: a slow machine's job may need more. */
static void expect_list(const char *line, const char *out)
{
    int code = run(line);
    for (int tries = 0; tries < 10 && strstr(said, "no answer"); tries++)
        code = run(line);
    compare(line, code, 0, out, NULL);
}

static void test_words(void **state)
{
    (void)state;
    assert_true(commands_is("list"));
    assert_true(commands_is("drain"));
    assert_false(commands_is("./status"));
    assert_false(commands_is("--help"));
    expect("list --json x", 2, NULL, "hvdrun list: one word too many: \"x\"\nusage: hvdrun list");
    expect("status a b", 2, NULL, "one word too many: \"b\"");
    expect("status --frobnicate", 2, NULL, "unknown option --frobnicate");
    expect("list --watch", 2, NULL, "unknown option --watch");
    expect("status --watch=0", 2, NULL, "--watch: \"0\": want seconds from 0.1");
    expect("status --watch=often", 2, NULL, "--watch: \"often\": want seconds");
    expect("scale train-1", 2, NULL, "want JOB N");
    expect("scale train-1 4 --wait", 2, NULL, "--wait needs SECONDS");
    expect("scale train-1 4 --wait x", 2, NULL, "--wait: \"x\": want seconds");
    expect("drain", 2, NULL, "want JOB HOST|RANK");
    expect("drain --help", 0, "usage: hvdrun drain JOB HOST|RANK", NULL);
    expect("status -h", 0, "--watch[=SECONDS]", NULL);
}

static void test_asks(void **state)
{
    (void)state;
    expect_list("list", "train-1  running  3 of 3      1");
    expect_list("list --json", "\"name\":\"train-1\",\"state\":\"running\",\"ranks\":3");
    expect("status", 0, "train-1: running, 3 of 3 ranks (2 to 8), epoch 1, up ", NULL);
    expect("status train-1", 0, "   0       0  h       9        0           -  active", NULL);
    expect("status --json train-1", 0, "{\"job\":\"x\",\"size\":3,", NULL);
    expect("status -- train-1", 0, "train-1: running", NULL);
    expect("status nope", 1, NULL, "hvdrun status: no job \"nope\"; jobs here: train-1");
}

static void test_changes(void **state)
{
    (void)state;
    expect("scale train-1 5", 0, "change 1: 3 -> 5 ranks\n", NULL);
    expect("scale train-1 6 --wait 30", 0, "change 2: 5 -> 6 ranks\n", NULL);
    assert_non_null(strstr(said, "changing, 3 of 6 ranks, waiting for 1 rank that starts\n"));
    assert_non_null(strstr(said, "change 2 is in effect: epoch 3, 3 ranks, after "));
    expect("scale train-1 6", 0, "change 3: 6 ranks, as before\n", NULL);
    expect("drain train-1 2", 0, "change 4: rank 2 leaves\n", NULL);
    expect("drain train-1 node3 --json", 0, "{\"change\":5,\"np\":4}", NULL);
    expect("scale train-1 7 --wait=0.1", 1, "change 6: 4 -> 7 ranks\n",
           "change 6 is not in effect after 0.1 s (changing");
    /* The request is refused, and the job does not change. */
    expect("scale train-1 10", 1, NULL, "job train-1: 10 ranks are more than --max-np 8");
    expect("drain train-1 7", 1, NULL, "job train-1: there is no rank 7");
    expect("scale train-1 0", 1, NULL, "\"0\": want a number of ranks from 1 to 65536");
    expect("scale train-1 -3", 1, NULL, "\"-3\": want a number of ranks");
    expect("scale train-1 4x", 1, NULL, "\"4x\": want a number of ranks");
    expect("scale nope 4", 1, NULL, "no job \"nope\"");
    expect("drain train-1 99999999999999999999", 1, NULL, "there is no rank 9999");
    expect("status", 0, "3 of 7 ranks", NULL);
}

static void test_trouble(void **state)
{
    char path[128];
    (void)state;
    put_token("wrong\n");
    expect("status train-1", 1, NULL, "/token is not that of this job");
    expect("list", 0, "train-1  no access      -", NULL);
    jobs_path(path, sizeof(path), dir, "token");
    unlink(path);
    expect("status train-1", 1, NULL, "job train-1: its token");
    put_token("secret");
    expect("status train-1", 0, "train-1: running", NULL);
    kill(coordinator, SIGUSR1); /* from now on the coordinator answers nothing */
    expect("list", 0, "train-1  no answer      -", NULL);
    expect("status", 1, NULL, "its hvdrun (pid 4711) has not answered within 5 s");
    end_coordinator();
    expect("list", 0, "gone: the job's hvdrun was killed; hvdrun attach NAME", NULL);
    expect("list -v", 0, "train-1  gone ", NULL);
    expect("status", 1, NULL, "no job runs here");
    expect("status train-1", 1, NULL,
           "job train-1: its hvdrun (pid 4711) is gone; if it is an elastic job, hvdrun attach "
           "train-1 takes it over; other jobs here: none");
}

/* The job ends while status --watch runs. */
static void test_end(void **state)
{
    (void)state;
    pid_t killer = fork();
    if (killer == 0) {
        sleep(2);
        kill(coordinator, SIGKILL);
        _exit(0);
    }
    expect("status --watch=0.3", 0, "train-1 has ended\n", NULL);
    char *again = strstr(said + 1, "train-1: running");
    assert_non_null(again);
    assert_int_equal(waitpid(killer, NULL, 0), killer);
    waitpid(coordinator, NULL, 0);
    coordinator = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_words, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trouble, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
