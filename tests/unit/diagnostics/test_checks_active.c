/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_active: the conclusions of the tests that load the machine; each test measures
 * something here and leaves nothing behind.
 *
 * takes: 4 s
 */
#include <dirent.h>
#include <errno.h>

#include "diagnostics/probe.h"
#include "tests/unit/diagnostics/checkup.h"

static void level2(void)
{
    checkup_new();
    checkup.setting.level = 2;
}

static void test_rates(void **state)
{
    static const struct {
        const char *id, *probe, *words;
    } all[] = {
        {"shm-bandwidth", "active-shm", "shared memory"},
        {"memory-bandwidth", "active-memory", "triad"},
        {"loopback-bandwidth", "active-loopback", "loopback"},
        {"storage-read", "active-storage", "train.bin"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        level2();
        checkup_expect(all[i].id, CHECK_SKIP, "");
        checkup_answer(all[i].probe, "bytes 9000000000\nseconds 0.9\nfile /data/train.bin\n");
        checkup_expect(all[i].id, CHECK_PASS, all[i].words);
        assert_string_equal(checkup.result.observed, "10.00 GB/s");
        checkup_answer(all[i].probe, "bytes 9000000\nseconds 0.9\nfile /data/train.bin\n");
        checkup_expect(all[i].id, CHECK_WARN, "only 0.01 GB/s");
        checkup_answer(all[i].probe, "bytes 0\nseconds 1\n");
        checkup_expect(all[i].id, CHECK_FAIL, "no byte was transferred");
        checkup_answer(all[i].probe, "state timeout 8000\n");
        checkup_expect(all[i].id, CHECK_WARN, "8000 ms");
    }
    checkup_answer("active-storage", "state failed 2\n");
    checkup_expect("storage-read", CHECK_SKIP, "--data");
}

static int count_shm(void)
{
    int n = 0;
    DIR *d = opendir("/dev/shm");
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += strncmp(e->d_name, "hvd-doctor-", 11) == 0;
    if (d)
        closedir(d);
    return n;
}

/* Runs the four tests on this machine. */
static void test_here(void **state)
{
    static const char *const names[] = {"active-shm", "active-memory", "active-loopback",
                                        "active-storage"};
    struct setting s = {
        .level = 2, .timeout_ms = 60000, .local_ranks = 1, .data_dir = "/usr/lib/x86_64-linux-gnu"};
    struct machine m;
    struct err err = {0};
    (void)state;
    assert_int_equal(machine_open_live(&m, &err), 0);
    assert_int_equal(probe_ask(&m, names, 4, &s, &err), 0);
    for (int i = 0; i < 4; i++) {
        const struct answer *a = machine_answer(&m, names[i]);
        char how[128];
        answer_describe(a, how, sizeof(how));
        if (i == 3 && a->state == ANSWER_FAILED && a->detail == ENOENT)
            continue; /* no large file in data_dir */
        if (a->state != ANSWER_OK || answer_int(a, "bytes", 0) < 1 << 20)
            fail_msg("%s: %s, %lld bytes", names[i], how, (long long)answer_int(a, "bytes", 0));
    }
    assert_int_equal(count_shm(), 0);
    machine_close(&m);
}

static void test_tables(void **state)
{
    (void)state;
    checkup_texts(&checks_active);
    checkup_all_seen(&checks_active);
    checkup_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_here),
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
