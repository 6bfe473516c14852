/* SPDX-License-Identifier: Apache-2.0
 *
 * options: horovodrun's options and its YAML file on hvdrun's command line.
 * tests/e2e/test_hvdrun*.sh test the rest of the command line.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/options.h"

#define WORDS 32

/* Standard error goes into a file in memory. */
struct quiet {
    int before, file;
};

static void quiet_begin(struct quiet *q)
{
    fflush(stderr);
    q->before = dup(STDERR_FILENO);
    q->file = memfd_create("stderr", 0);
    assert_true(q->before >= 0 && q->file >= 0 && dup2(q->file, STDERR_FILENO) >= 0);
}

/* Stores what was written as text. */
static void quiet_end(struct quiet *q, char *said, size_t size)
{
    fflush(stderr);
    ssize_t n = pread(q->file, said, size - 1, 0);
    said[n > 0 ? n : 0] = '\0';
    dup2(q->before, STDERR_FILENO);
    close(q->before);
    close(q->file);
}

/* Parses the words, separated by spaces, followed by the command "true". */
static int parse(struct options *ret, const char *words, struct err *err)
{
    static char copy[1024];
    char *argv[WORDS + 3] = {"hvdrun"}, *save = NULL;
    int argc = 1;
    snprintf(copy, sizeof(copy), "%s", words);
    for (char *w = strtok_r(copy, " ", &save); w && argc <= WORDS; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    argv[argc++] = "true";
    return options_parse(ret, argc, argv, err);
}

static void expect_variable(const char *words, const char *name, const char *value)
{
    struct options o;
    struct err err = {0};
    if (parse(&o, words, &err) < 0)
        fail_msg("%s: %s", words, err.msg);
    const char *found = job_getenv(&o.job, name);
    if (!found != !value || (value && strcmp(found, value) != 0))
        fail_msg("%s: %s is %s, not %s", words, name, found ? found : "not set",
                 value ? value : "not set");
    assert_non_null(o.job.argv);
    assert_string_equal(o.job.argv[0], "true");
    job_fini(&o.job);
}

static void expect_error(const char *words, const char *text)
{
    struct options o;
    struct err err = {0};
    assert_int_equal(parse(&o, words, &err), -EINVAL);
    if (!strstr(err.msg, text))
        fail_msg("%s: \"%s\" is not in: %s", words, text, err.msg);
    job_fini(&o.job);
}

static void test_options_of_horovodrun(void **state)
{
    expect_variable("--no-stall-check", "HVD_STALL_CHECK_DISABLE", "1");
    expect_variable("--no-stall-check --stall-check", "HVD_STALL_CHECK_DISABLE", "0");
    expect_variable("--timeline-mark-cycles", "HVD_TIMELINE_MARK_CYCLES", "1");
    expect_variable("--tcp", "NCCL_IB_DISABLE", "1");
    expect_variable("--gloo --mpi --disable-cache --autotune-log-file x --no-autotune "
                    "--num-nccl-streams=2 --thread-affinity 1 --log-without-timestamp "
                    "--mpi-threads-disable --cycle-time-ms 3.5",
                    "HVD_CYCLE_TIME", "3.5");
    expect_error("--no-gloo", "unknown option --no-gloo");
}

/* Each is accepted with one line that says why it changes nothing. */
static void test_unused(void **state)
{
    char said[2048];
    struct quiet q;
    struct options o;
    struct err err = {0};
    quiet_begin(&q);
    int rc = parse(&o, "--jsrun --hierarchical-allreduce --mpi-args x --gloo", &err);
    quiet_end(&q, said, sizeof(said));
    assert_int_equal(rc, 0);
    assert_non_null(strstr(said, "--jsrun changes nothing: hvdrun starts the ranks itself"));
    assert_non_null(strstr(said, "--hierarchical-allreduce changes nothing: on CPUs"));
    assert_non_null(strstr(said, "--mpi-args changes nothing"));
    assert_null(strstr(said, "--gloo"));
    job_fini(&o.job);
}

static int file_of(const char *text, char *path, size_t size)
{
    int fd = memfd_create("config", 0);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    snprintf(path, size, "/proc/self/fd/%d", fd);
    return fd;
}

static const char whole[] = "controller: gloo\n"
                            "params:\n"
                            "  fusion_threshold_mb: 32\n"
                            "  cycle_time_ms: 10\n"
                            "  hierarchical_allreduce: false\n"
                            "autotune:\n"
                            "  enabled: false\n"
                            "timeline:\n"
                            "  filename: '/tmp/t.json'\n"
                            "  mark_cycles: true\n"
                            "stall_check:\n"
                            "  enabled: false\n"
                            "  warning_time_seconds: 120\n"
                            "library_options:\n"
                            "  num_nccl_streams: 2\n"
                            "logging:\n"
                            "  level: INFO\n"
                            "  level_of_nothing: 3\n"
                            "  with_timestamp: ~\n"
                            "library_options:\n"
                            "new:\n  file: /x\n";

static void test_config_file(void **state)
{
    static const struct {
        const char *more, *name, *value;
    } of[] = {
        {"", "HVD_FUSION_THRESHOLD", "32M"},
        {"", "HVD_CYCLE_TIME", "10"},
        {"", "HVD_TIMELINE", "/tmp/t.json"},
        {"", "HVD_TIMELINE_MARK_CYCLES", "1"},
        {"", "HVD_STALL_CHECK_DISABLE", "1"},
        {"", "HVD_STALL_CHECK_TIME_SECONDS", "120"},
        {"", "HVD_LOG_LEVEL", "INFO"},
        /* the command line comes first, before the file and behind it */
        {"--cycle-time-ms 2", "HVD_CYCLE_TIME", "2"},
        {"--stall-check", "HVD_STALL_CHECK_DISABLE", "0"},
        {"--no-timeline-mark-cycles", "HVD_TIMELINE_MARK_CYCLES", "0"},
        {"-x HVD_CYCLE_TIME=7", "HVD_CYCLE_TIME", "7"},
        {"--timeline-filename /tmp/u.json", "HVD_TIMELINE", "/tmp/u.json"},
    };
    char path[64], words[256], said[2048];
    struct quiet q;
    int fd = file_of(whole, path, sizeof(path));
    for (size_t i = 0; i < 2 * sizeof(of) / sizeof(*of); i++) {
        bool behind = i % 2;
        snprintf(words, sizeof(words), "%s --config-file %s %s", behind ? "" : of[i / 2].more, path,
                 behind ? of[i / 2].more : "");
        quiet_begin(&q);
        expect_variable(words, of[i / 2].name, of[i / 2].value);
        quiet_end(&q, said, sizeof(said));
        assert_non_null(strstr(said, ":18: no setting level_of_nothing, ignored"));
        assert_non_null(strstr(said, ":21: no setting new, ignored"));
    }
    close(fd);
}

static void test_bad_config_file(void **state)
{
    static const struct {
        const char *text, *error;
    } of[] = {
        {"params: [1]\n", ":1: want a mapping of names and values"},
        {"params: 3\n", ":1: want a mapping of names and values"},
        {"- params\n", ":1: want a mapping of sections"},
        {"params:\n  cycle_time_ms: abc\n", ":2: --cycle-time-ms: \"abc\": want a number"},
        {"params:\n  cycle_time_ms: [1]\n", ":2: want a name and one value"},
        {"params:\n  [a]: 1\n", ":2: want a name and one value"},
        {"controller: ddl\n", ":1: controller: want gloo or mpi"},
        {"controller: {}\n", ":1: controller: want gloo or mpi"},
        {"logging:\n  level: LOUD\n", ":2: --log-level: \"LOUD\": want error"},
        {"params:\n\tx: 1\n", "found character that cannot start any token"},
    };
    char path[64], words[128];
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        int fd = file_of(of[i].text, path, sizeof(path));
        snprintf(words, sizeof(words), "--config-file %s", path);
        expect_error(words, of[i].error);
        close(fd);
    }
    int fd = file_of("params:\n  file: /nonexist\n  version: true\n  cycle_time_ms: null\n"
                     "timeline:\n  mark_cycles: ~\n",
                     path, sizeof(path));
    snprintf(words, sizeof(words), "--config-file %s", path);
    expect_variable(words, "HVD_CYCLE_TIME", NULL);
    expect_variable(words, "HVD_TIMELINE_MARK_CYCLES", NULL);
    close(fd);
    expect_variable("--config-file /dev/null --cycle-time-ms 4", "HVD_CYCLE_TIME", "4");
    expect_error("--config-file=", "an empty name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_of_horovodrun),
        cmocka_unit_test(test_unused),
        cmocka_unit_test(test_config_file),
        cmocka_unit_test(test_bad_config_file),
    };
    return cmocka_run_group_tests_name("unit/agent/test_options", tests, NULL, NULL);
}
