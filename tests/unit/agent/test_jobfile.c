/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/jobfile: a whole manifest, defaults, ignored fields, messages with line and field.
 */
#include <stdarg.h>
#include <errno.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "agent/jobfile.h"

static char path[64], ignored[256];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof(path), "/tmp/hvd-test-job-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int teardown(void **state)
{
    (void)state;
    return unlink(path);
}

static int read_text(struct job *job, const char *text, struct err *err)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    job_init(job);
    return jobfile_read(job, path, ignored, sizeof(ignored), err);
}

#define HEAD "apiVersion: hvd.dev/v1alpha1\nkind: HvdJob\n"

static void test_whole(void **state)
{
    struct job job;
    struct err err = {0};
    (void)state;
    int rc =
        read_text(&job,
                  HEAD "metadata: {name: digits, labels: {a: b}}\n"
                       "spec:\n"
                       "  slotsPerWorker: 3\n"
                       "  workers: 2\n"
                       "  template:\n"
                       "    spec:\n"
                       "      containers:\n"
                       "      - args: [--lr, 0.1]\n"
                       "        command: [python3, train.py]\n"
                       "        image: x\n"
                       "        env: [{name: A, value: '1'}, {name: E}, {name: A, value: two}]\n"
                       "        workingDir: /w\n"
                       "      - name: sidecar\n"
                       "      volumes: []\n",
                  &err);
    if (rc)
        fail_msg("%s", err.msg);
    assert_int_equal(job.np, 6);
    assert_string_equal(job.name, "digits");
    assert_string_equal(job.cwd, "/w");
    const char *argv[] = {"python3", "train.py", "--lr", "0.1"};
    assert_int_equal(strings_count(job.argv), 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(job.argv[i], argv[i]);
    assert_int_equal(strings_count(job.env), 2);
    assert_string_equal(job.env[0], "A=two");
    assert_string_equal(job.env[1], "E=");
    assert_string_equal(ignored, "containers after the first, image, volumes");
    job_fini(&job);
}

static void test_least(void **state)
{
    struct job job;
    (void)state;
    assert_int_equal(
        read_text(&job, HEAD "spec: {template: {spec: {containers: [{command: [ls]}]}}}\n", NULL),
        0);
    assert_int_equal(job.np, 1);
    assert_null(job.cwd);
    assert_string_equal(ignored, "");
    job_fini(&job);
}

/* hvdrun names the fields that only a cluster uses once each, whatever they contain. A pod
 * template may contain any field. */
static void test_cluster(void **state)
{
    struct job job;
    struct err err = {0};
    (void)state;
    int rc = read_text(&job,
                       HEAD "status: {phase: x}\n"
                            "spec:\n"
                            "  workers: 2\n"
                            "  minWorkers: 1\n"
                            "  maxWorkers: 4\n"
                            "  keepPlaces: true\n"
                            "  gang: {backend: native, timeoutSeconds: 5, probeSeconds: 1}\n"
                            "  doctor: {level: 1, policy: fail}\n"
                            "  runPolicy: {cleanPodPolicy: Running, ttlSecondsAfterFinished: 1,\n"
                            "    activeDeadlineSeconds: 9, backoffLimit: 3, suspend: false,\n"
                            "    managedBy: x}\n"
                            "  template:\n"
                            "    metadata: {}\n"
                            "    workers: 3\n"
                            "    spec: {wrokers: 1, containers: [{command: [a], gang: {x: y}}]}\n",
                       &err);
    if (rc)
        fail_msg("%s", err.msg);
    assert_int_equal(job.np, 2);
    assert_int_equal(job.min_np, 1);
    assert_int_equal(job.max_np, 4);
    assert_true(job.keep_places);
    assert_int_equal(job.doctor, DOCTOR_FAIL);
    assert_string_equal(ignored, "status, gang, doctor.level, runPolicy, template.metadata, "
                                 "workers, wrokers");
    job_fini(&job);
}

static void test_messages(void **state)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", ":1: HvdJob: the file is empty"},
        {"- a\n", ":1: apiVersion: want hvd.dev/v1alpha1"},
        {"kind: HvdJob\n", ":1: apiVersion: want hvd.dev/v1alpha1"},
        {"apiVersion: hvd.dev/v1alpha1\nkind: Pod\n", ":2: kind: want HvdJob"},
        {HEAD, ":1: spec.template.spec.containers: missing"},
        {HEAD "spec: 5\n", ":3: spec: want a mapping"},
        {HEAD "spec:\n  template:\n    spec: {containers: []}\n", "want a list with a container"},
        {HEAD "spec:\n  workers: 0\n  template: {spec: {containers: [{command: [a]}]}}\n",
         ":4: spec.workers: \"0\": want an integer from 1"},
        {HEAD "spec:\n  workers: [1]\n  template: {spec: {containers: [{command: [a]}]}}\n",
         ":4: spec.workers: want a text"},
        {HEAD "spec:\n  workers: 65536\n  slotsPerWorker: 2\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         "too many ranks"},
        {HEAD "spec:\n  minWorkers: 0\n  template: {spec: {containers: [{command: [a]}]}}\n",
         ":4: spec.minWorkers: \"0\": want an integer from 1"},
        {HEAD "spec:\n  maxWorkers: 2\n  minWorkers: 3\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         ":5: spec.minWorkers: 3 is more than maxWorkers 2"},
        {HEAD "spec:\n  workers: 2\n  minWorkers: 3\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         ":5: spec.minWorkers: 3 is more than workers 2"},
        {HEAD "spec:\n  workers: 3\n  maxWorkers: 2\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         ":4: spec.workers: 3 is more than maxWorkers 2"},
        {HEAD "spec:\n  workers: 2\n  keepPlaces: true\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         ":5: spec.keepPlaces: it needs minWorkers or maxWorkers"},
        {HEAD "spec:\n  minWorkers: 2\n  keepPlaces: maybe\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         ":5: spec.keepPlaces: want true or false"},
        {HEAD "spec:\n  maxWorkers: 65536\n  slotsPerWorker: 2\n"
              "  template: {spec: {containers: [{command: [a]}]}}\n",
         ":4: spec.maxWorkers: too many ranks"},
        {HEAD "spec: {template: {spec: {containers: [{image: x}]}}}\n", "command: missing"},
        {HEAD "spec: {template: {spec: {containers: [{command: []}]}}}\n", "command: empty"},
        {HEAD "spec: {template: {spec: {containers: [{command: [a], env: [{name: A=B}]}]}}}\n",
         "not a name of a variable"},
        {HEAD "spec: {template: {spec: {containers: [{command: [\"a\\0b\"]}]}}}\n", "a NUL in it"},
        {HEAD "spec: *nowhere\n", ":3: "},
        {HEAD "\tspec: x\n", ":3: "},
        {HEAD "? [a]\n: b\n", "a key that is no word"},
        {HEAD "spec:\n  worker: 2\n", ":4: spec.worker: no such field; did you mean workers?"},
        {HEAD "spec:\n  slotsperworker:\n    2\n",
         ":4: spec.slotsperworker: no such field; did you mean slotsPerWorker?"},
        {HEAD "spec:\n  replicas: 2\n",
         ":4: spec.replicas: no such field; there are workers minWorkers maxWorkers slotsPerWorker "
         "keepPlaces gang doctor runPolicy template"},
        {HEAD "spec:\n  '': 2\n", ":4: spec.: no such field; there are workers"},
        {HEAD "spec:\n  gang:\n    backend: x\n    timeoutSecond: 3\n",
         ":6: spec.gang.timeoutSecond: no such field; did you mean timeoutSeconds?"},
        {HEAD "spec:\n  gang: {level: 1}\n",
         ":4: spec.gang.level: no such field; there are backend timeoutSeconds probeSeconds"},
        {HEAD "spec:\n  runPolicy: {cleanpodpolicy: All}\n", "did you mean cleanPodPolicy?"},
        {HEAD "spec: {doctor: 3}\n", ":3: spec.doctor: want a mapping"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct job job;
        struct err err = {0};
        assert_int_equal(read_text(&job, cases[i].text, &err), -EINVAL);
        if (!strstr(err.msg, cases[i].words) || strncmp(err.msg, path, strlen(path)) != 0)
            fail_msg("%s: %s", cases[i].text, err.msg);
        job_fini(&job);
    }
}

/* Returns before, n times one, and after as one text. The caller frees it. */
static char *many(const char *before, const char *one, int n, const char *after)
{
    size_t len = strlen(before), step = strlen(one);
    char *text = malloc(len + (size_t)n * step + strlen(after) + 1);
    assert_non_null(text);
    memcpy(text, before, len);
    for (int i = 0; i < n; i++, len += step)
        memcpy(text + len, one, step + 1);
    memcpy(text + len, after, strlen(after) + 1);
    return text;
}

/* Input for which libyaml or the parser would need quadratic time is refused at once. A long
 * command is accepted. */
static void test_limits(void **state)
{
    const char *command = HEAD "spec: {template: {spec: {containers: [{command: [";
    struct {
        char *text;
        const char *words;
    } cases[] = {
        {many(HEAD "x: ", "[", 300000, ""), ":3: brackets are nested too deeply"},
        {many(HEAD "spec: ", "{a: ", 200000, ""), ":3: brackets are nested too deeply"},
        {many(HEAD, "same: 1\n", 2000, ""), ":1: HvdJob: too many fields"},
        {many(HEAD "spec: {template: {spec: {containers: [{command: [a], env: [", "{name: A},",
              6000, "]}]}}}\n"),
         "containers[0].env: too many variables"},
        {many(command, "a,", 200000, "]}]}}}\n"), NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct job job;
        struct err err = {0};
        int rc = read_text(&job, cases[i].text, &err);
        if (rc != (cases[i].words ? -EINVAL : 0) ||
            (cases[i].words && !strstr(err.msg, cases[i].words)))
            fail_msg("case %zu: %d: %s", i, rc, err.msg);
        if (rc == 0)
            assert_int_equal(strings_count(job.argv), 200000);
        job_fini(&job);
        free(cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_least, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cluster, setup, teardown),
        cmocka_unit_test_setup_teardown(test_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
