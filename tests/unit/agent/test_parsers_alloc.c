/* SPDX-License-Identifier: Apache-2.0
 *
 * Input of hvdrun and hvd-agent with failing allocations: command line, host file, job file,
 * configuration. Each is read as a whole, or refused with -ENOMEM and a message, and nothing leaks.
 * Also the printer: if it loses output of a rank, printer_lost() says so.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/expand.h"
#include "agent/jobfile.h"
#include "agent/options.h"
#include "agent/printer.h"
#include "core/base/cleanup.h"
#include "tests/harness/fail_alloc.h"

#define LONG_TEXT                                                                                  \
    "a text that is longer than what a buffer has at its beginning, and then some more"

static char path[64];

/* Returns rc, or -EBADMSG if rc is -ENOMEM and err has no message. */
static int said(int rc, const struct err *err)
{
    if (rc != -ENOMEM || err->msg[0])
        return rc;
    printf("no message\n");
    return -EBADMSG;
}

static int same(const char *got, const char *want)
{
    if (got && strcmp(got, want) == 0)
        return 0;
    printf("\"%s\", not \"%s\"\n", got ? got : "(none)", want);
    return -EBADMSG;
}

static int same_list(char *const *got, const char *const *want)
{
    size_t n = strings_count(got);
    if (n != strings_count((char *const *)want))
        return -EBADMSG;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = same(got[i], want[i]);
    return rc;
}

/* ---- parsers -------------------------------------------------------------------------------- */

static const char job_text[] = "apiVersion: hvd.dev/v1alpha1\n"
                               "kind: HvdJob\n"
                               "metadata: {name: digits}\n"
                               "spec:\n"
                               "  workers: 2\n"
                               "  gang: {backend: native}\n"
                               "  template:\n"
                               "    spec:\n"
                               "      containers:\n"
                               "      - command: [python3, \"" LONG_TEXT "\"]\n"
                               "        args: [$(A), x]\n"
                               "        env: [{name: A, value: \"" LONG_TEXT "\"}, {name: E}]\n"
                               "        workingDir: /w\n"
                               "        image: none\n";

static int read_job(void)
{
    static const char *const argv[] = {"python3", LONG_TEXT, LONG_TEXT, "x", NULL};
    static const char *const env[] = {"A=" LONG_TEXT, "E=", NULL};
    char ignored[256];
    struct job job;
    struct err err = {0};
    job_init(&job);
    int rc = said(jobfile_read(&job, path, ignored, sizeof(ignored), &err), &err);
    if (rc == 0 && job.np != 2)
        rc = -EBADMSG;
    if (rc == 0)
        rc = same_list(job.argv, argv);
    if (rc == 0)
        rc = same_list(job.env, env);
    if (rc == 0)
        rc = same(job.name, "digits");
    if (rc == 0)
        rc = same(job.cwd, "/w");
    if (rc == 0)
        rc = same(ignored, "gang, image");
    job_fini(&job);
    return rc;
}

static int read_options(void)
{
    static const char *const words[] = {"hvdrun",
                                        "-np",
                                        "3",
                                        "-H",
                                        "h1:2,h2",
                                        "-x",
                                        "A=" LONG_TEXT,
                                        "--name",
                                        "digits",
                                        "--metrics",
                                        "9000",
                                        "--ssh-port",
                                        "2222",
                                        "--output-filename",
                                        "out",
                                        "--timeline-filename",
                                        "t",
                                        "-i",
                                        "/dev/null",
                                        "--log-level",
                                        "info",
                                        "python3",
                                        "train.py",
                                        NULL};
    static const char *const argv[] = {"python3", "train.py", NULL};
    struct options o;
    struct err err = {0};
    int n = (int)strings_count((char *const *)words);
    int rc = said(options_parse(&o, n, (char **)words, &err), &err);
    if (rc == 0 && (o.job.np != 3 || o.job.hosts.n != 2 || strings_count(o.job.env) != 3))
        rc = -EBADMSG;
    if (rc == 0)
        rc = same_list(o.job.argv, argv);
    if (rc == 0)
        rc = same(job_getenv(&o.job, "A"), LONG_TEXT);
    if (rc == 0)
        rc = same(job_getenv(&o.job, "HVD_LOG_LEVEL"), "info");
    if (rc == 0 && (!job_getenv(&o.job, "HVD_TIMELINE") || !o.job.output_dir || !o.job.metrics))
        rc = -EBADMSG;
    job_fini(&o.job);
    return rc;
}

static int read_hosts(void)
{
    struct hosts hosts = {0};
    struct err err = {0};
    int rc = said(hosts_parse(&hosts, "h1:2,h2:3,h3,h1:4", &err), &err);
    if (rc == 0 && (hosts.n != 3 || hosts.list[0].slots != 6))
        rc = -EBADMSG;
    if (rc == 0)
        rc = said(hosts_assign(&hosts, 8, &err), &err);
    if (rc == 0 && (hosts.n != 2 || hosts.list[1].nranks != 2))
        rc = -EBADMSG;
    hosts_fini(&hosts);
    return rc;
}

static int read_horovod_config(void)
{
    static const char text[] =
        "params: {cycle_time_ms: 7}\ntimeline:\n  filename: /" LONG_TEXT "\n";
    char *argv[] = {"hvdrun", "--config-file", path, "true", NULL};
    struct options o;
    struct err err = {0};
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd < 0 || close(fd) < 0 || !written)
        return -EBADMSG;
    int rc = said(options_parse(&o, 4, argv, &err), &err);
    if (rc == 0)
        rc = same(job_getenv(&o.job, "HVD_CYCLE_TIME"), "7");
    if (rc == 0)
        rc = same(job_getenv(&o.job, "HVD_TIMELINE"), "/" LONG_TEXT);
    job_fini(&o.job);
    return rc;
}

static int read_this_host(void)
{
    struct hosts hosts = {0};
    struct err err = {0};
    int rc = said(hosts_assign(&hosts, 8, &err), &err);
    if (rc == 0 && (hosts.n != 1 || hosts.list[0].nranks != 8))
        rc = -EBADMSG;
    hosts_fini(&hosts);
    return rc;
}

static int read_text(void)
{
    char *const env[] = {"A=" LONG_TEXT, NULL};
    auto_free char *text = expand("$(A)$$$(B) $(A)", env);
    return text ? same(text, LONG_TEXT "$$(B) " LONG_TEXT) : -ENOMEM;
}

/* ---- hvdrun to its agents -------------------------------------------------------------------- */

static char *argv_given[] = {"python3", LONG_TEXT, "caf\xe9", NULL}, *env_given[] = {"A=b", NULL};
static const struct agent_config given = {
    .agent = "agent-0",
    .host = "h",
    .url = "https://h:1/",
    .unix_path = "/run/" LONG_TEXT,
    .ca_pem = LONG_TEXT "\n" LONG_TEXT,
    .token = "secret",
    .argv = argv_given,
    .env = env_given,
    .cwd = "/w",
    .metrics = "9000",
    .start_timeout = 30,
};
static char *wanted; /* config_write() of `given` */

static int write_config(void)
{
    auto_free char *text = config_write(&given);
    return text ? same(text, wanted) : -ENOMEM;
}

static int read_config(void)
{
    struct agent_config c;
    struct err err = {0};
    int rc = said(config_read(wanted, strlen(wanted), &c, &err), &err);
    if (rc < 0)
        return rc;
    long fail_at = fail_alloc.fail_at;
    fail_alloc.fail_at = -1;
    auto_free char *text =
        config_write(&c); /* no failing allocations here: the result must be complete */
    rc = same(text, wanted);
    fail_alloc.fail_at = fail_at;
    config_fini(&c);
    return rc;
}

/* ---- the printer ----------------------------------------------------------------------------- */

static void put(struct printer *p, int rank, const char *text)
{
    struct frame frame = {
        .rank = (uint32_t)rank, .data = (const uint8_t *)text, .len = strlen(text)};
    printer_put(p, &frame);
}

/* Two ranks print lines in pieces. Every byte arrives, or printer_lost() says that some did not. */
static int print_lines(struct loop *loop)
{
    struct printer p;
    struct err err = {0};
    char lost[64];
    int rc = said(printer_init(&p, loop, 2, false, NULL, false, NULL, NULL, &err), &err);
    if (rc < 0)
        return rc;
    put(&p, 0, LONG_TEXT);
    put(&p, 1, LONG_TEXT LONG_TEXT "\n" LONG_TEXT);
    put(&p, 0, LONG_TEXT "\n");
    put(&p, 1, "\n");
    printer_finish(&p);
    for (int i = 0; i < 100 && printer_pending(&p) > 0; i++) /* a thread writes the file */
        loop_once(loop, 1000);
    rc = -printer_lost(&p, lost, sizeof(lost));
    printer_fini(&p);
    return rc;
}

/* Prints with standard output in a file, and counts the bytes in it. */
static int print(void)
{
    int keep = dup(STDOUT_FILENO), fd = open(path, O_RDWR | O_TRUNC | O_CLOEXEC), rc;
    char text[4096];
    struct loop loop;
    if (keep < 0 || fd < 0 || dup2(fd, STDOUT_FILENO) < 0)
        return -EBADMSG;
    rc = loop_init(&loop);
    if (rc == 0) {
        rc = print_lines(&loop);
        loop_fini(&loop);
    }
    dup2(keep, STDOUT_FILENO);
    close(keep);
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    close(fd);
    size_t letters = 0;
    for (ssize_t i = 0; i < n; i++)
        letters += text[i] != '\n';
    if (rc == 0 && letters != 5 * strlen(LONG_TEXT)) {
        printf("%zu letters were printed, not %zu\n", letters, 5 * strlen(LONG_TEXT));
        rc = -EBADMSG;
    }
    return rc;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/hvd-test-alloc-XXXXXX");
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, job_text, sizeof(job_text) - 1);
    close(fd);
    wanted = config_write(&given);
    return n == sizeof(job_text) - 1 && wanted ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    free(wanted);
    return unlink(path);
}

static void test_input(void **state)
{
    (void)state;
    int faults = fail_alloc_walk("job file", read_job) + fail_alloc_walk("options", read_options);
    faults += fail_alloc_walk("hosts", read_hosts) + fail_alloc_walk("one host", read_this_host);
    faults += fail_alloc_walk("expand", read_text);
    faults += fail_alloc_walk("Horovod's configuration", read_horovod_config);
    assert_int_equal(faults, 0);
}

static void test_config(void **state)
{
    (void)state;
    int faults = fail_alloc_walk("write", write_config) + fail_alloc_walk("read", read_config);
    assert_int_equal(faults, 0);
}

static void test_printer(void **state)
{
    (void)state;
    assert_int_equal(fail_alloc_walk("printer", print), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_input),
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_printer),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!FAIL_ALLOC)
        printf("SKIP: agent/parsers_alloc: no sanitizer: it has its own malloc\n");
    return cmocka_run_group_tests(tests, setup, teardown);
}
