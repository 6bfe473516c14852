/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_workers: the conclusions from the answers of several machines, and the tournament in
 * which each machine is paired with each other. tests/e2e/test_doctor_workers.sh tests the
 * measurements.
 */
#include "diagnostics/workers/workers.h"
#include "tests/unit/diagnostics/checkup.h"

#define WORKER(I, HOST)                                                                            \
    "worker." I ".host " HOST "\nworker." I ".arch x86_64\nworker." I ".hvd 0.1.0\nworker." I      \
    ".nics 1\nworker." I ".env NCCL_DEBUG=WARN\\nOMP_NUM_THREADS=4\\n\nworker." I                  \
    ".compute_ms 10.0\nworker." I ".memory_ms 3\nworker." I ".tried 2\naddress_" I                 \
    ".0.ip 10.0.0." I "\n"
#define THREE "size 3\n" WORKER("0", "h0") WORKER("1", "h1") WORKER("2", "h2")
#define PAIR(I, K, TO, SKEW, LARGE)                                                                \
    "pair_" I "." K ".to " TO "\npair_" I "." K ".ip 10.0.0." TO "\npair_" I "." K                 \
    ".rtt_us 80\npair_" I "." K ".skew_ms " SKEW "\npair_" I "." K ".large_mbs " LARGE "\n"
#define GOOD_PAIRS PAIR("0", "0", "1", "0.1", "1000") PAIR("0", "1", "2", "-0.2", "900")

/* Returns row i of both tables together. */
static const struct check *row(size_t i)
{
    return i < checks_workers.n ? &checks_workers.checks[i]
                                : &checks_workers_paths.checks[i - checks_workers.n];
}

static void level3(void)
{
    checkup_new();
    checkup.setting.level = 3;
}

static void answer(const char *text)
{
    level3();
    checkup_answer("workers", text);
}

static void test_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < checks_workers.n + checks_workers_paths.n; i++) {
        level3();
        checkup_expect(row(i)->id, CHECK_SKIP, "hvdrun --doctor -H h1,h2");
    }
}

static void test_same(void **state)
{
    (void)state;
    answer(THREE GOOD_PAIRS "exact.rounds 40\nexact.bytes 4194304\n");
    for (size_t i = 0; i < checks_workers.n + checks_workers_paths.n; i++)
        checkup_expect(row(i)->id, CHECK_PASS, "");
    checkup_expect("xw-version-skew", CHECK_PASS, "libhvd 0.1.0");
    checkup_expect("xw-allreduce-exact", CHECK_PASS, "40 sums of 4194304 bytes over 3 workers");
    checkup_expect("xw-connect-matrix", CHECK_PASS, "6 connections between 3 workers");
    checkup_expect("xw-pair-bandwidth", CHECK_PASS, "900 MB/s at least");
}

static void test_differences(void **state)
{
    (void)state;
    answer(THREE "worker.0.nccl 2.27.7\nworker.1.nccl 2.27.7\nworker.2.nccl 2.21.5\n");
    checkup_expect("xw-version-skew", CHECK_FAIL,
                   "NCCL 2.27.7 on h0 (worker 0), 2.21.5 on h2 (worker 2)");
    answer(THREE "worker.1.driver 535.104.05\n");
    checkup_expect("xw-version-skew", CHECK_FAIL, "driver none on h0");
    answer("worker.1.arch aarch64\n" THREE);
    checkup_expect("xw-arch-skew", CHECK_FAIL, "h1 (worker 1) is aarch64");
    answer(THREE "worker.0.gpus NVIDIA H100\nworker.1.gpus NVIDIA H100\nworker.2.gpus A100\n");
    checkup_expect("xw-gpu-sku-skew", CHECK_WARN, "h2 (worker 2) has A100");
    answer("worker.2.nics 2\n" THREE);
    checkup_expect("xw-nic-count-skew", CHECK_WARN, "h2 (worker 2) has 2");
    answer("worker.1.env NCCL_DEBUG=INFO\\nOMP_NUM_THREADS=4\\nUCX_TLS=tcp\\n\n" THREE);
    checkup_expect("xw-env-skew", CHECK_WARN, "differ in NCCL_DEBUG; UCX_TLS");
}

static void test_paths(void **state)
{
    (void)state;
    answer(THREE GOOD_PAIRS "connect_0.0.to 1\nconnect_0.0.ip 10.0.0.1\n"
                            "connect_0.0.error No route to host\n");
    checkup_expect("xw-connect-matrix", CHECK_FAIL, "h0 (worker 0) to h1 (worker 1) at 10.0.0.1");
    answer(THREE GOOD_PAIRS "address_1.1.ip 10.1.0.1\nconnect_0.0.to 1\nconnect_0.0.ip 10.1.0.1\n"
                            "connect_0.0.error Connection timed out\n");
    checkup_expect("xw-connect-matrix", CHECK_WARN, "reached by another of its addresses");
    answer(THREE GOOD_PAIRS PAIR("1", "0", "2", "0", "300"));
    checkup_expect("xw-pair-bandwidth", CHECK_WARN, "h1 (worker 1) to h2 (worker 2) at 10.0.0.2");
    answer(THREE GOOD_PAIRS "pair_1.0.to 2\npair_1.0.ip 10.0.0.2\npair_1.0.part payloads of 1 MiB\n"
                            "pair_1.0.error Connection timed out\n");
    checkup_expect("xw-pair-bandwidth", CHECK_FAIL, "check the MTU of the path");
    answer(THREE PAIR("0", "0", "1", "250", "1000"));
    checkup_expect("xw-clock-skew", CHECK_WARN, "h1 (worker 1) is 250.0 ms ahead of");
    answer(THREE PAIR("0", "0", "1", "-2500", "1000"));
    checkup_expect("xw-clock-skew", CHECK_FAIL, "2500.0 ms behind");
}

static void test_work(void **state)
{
    (void)state;
    answer("worker.2.compute_ms 21\n" THREE);
    checkup_expect("xw-straggler", CHECK_WARN, "h2 (worker 2) takes 21.0 ms");
    answer("worker.2.memory_ms 9\n" THREE);
    checkup_expect("xw-straggler", CHECK_WARN, "(memory)");
    answer(THREE "exact.rounds 3\nworker.1.differ worker 1 has other bits than worker 0\n");
    checkup_expect("xw-allreduce-exact", CHECK_FAIL, "h1 (worker 1) says");
}

#define RANK(I, JOB, BATCHES, IDLE)                                                                \
    "rank." I ".job " JOB "\nrank." I ".rank " I "\nrank." I ".host h\nrank." I                    \
    ".state active\nrank." I ".batches " BATCHES "\nrank." I ".idle_ms " IDLE "\n"

static void test_jobs(void **state)
{
    const char *id = "rank-progress-stall";
    (void)state;
    checkup_new();
    checkup_answer("jobs", "jobs 0\n");
    checkup_expect(id, CHECK_SKIP, "no job of this user");
    checkup_answer("jobs", RANK("0", "a", "7", "20") RANK("1", "a", "7", "299000"));
    checkup_expect(id, CHECK_PASS, "2 ranks get on");
    checkup_answer("jobs", RANK("0", "a", "7", "400000") RANK("1", "a", "6", "401000"));
    checkup_expect(
        id, CHECK_WARN,
        "2 of 2 ranks have finished nothing for 401 s: rank 1 on h of job a is 1 batches");
    checkup_answer("jobs", RANK("0", "a", "7", "400000") RANK("1", "b", "900", "10"));
    checkup_expect(id, CHECK_WARN, "1 of 2 ranks have finished nothing for 400 s, all after");
    checkup_answer("jobs", "rank.0.state active\nrank.0.idle_ms many\nrank.5.job x\n");
    checkup_expect(id, CHECK_PASS, "1 rank gets on");
    checkup_answer("jobs", "state crashed 11\n");
    checkup_expect(id, CHECK_WARN, "SIGSEGV");
}

/* Invalid answers of a captured machine. */
static void test_torn(void **state)
{
    static const char *const texts[] = {
        "size 3\n",
        "size 99999999\n",
        "size -1\nworker.0.host x\n",
        "size 2\npair_0.0.to 77\npair_0.0.skew_ms nan\nconnect_1.0.to -5\n",
        "size 2\nworker.0.env =\\n=\\n\\n\nworker.1.env x\n",
        "size 4096\nworker.4095.compute_ms 1e308\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        answer(texts[i]);
        for (size_t k = 0; k < checks_workers.n + checks_workers_paths.n; k++)
            assert_int_not_equal(checkup_run(row(k)->id)->status, CHECK_ERROR);
    }
}

/* In n - 1 rounds each machine meets each other one once, and both sides compute the same pairs. */
static void test_tournament(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n += 2) {
        bool met[16][16] = {{false}};
        for (int round = 0; round < n - 1; round++) {
            for (int i = 0; i < n; i++) {
                int k = workers_opponent(i, round, n);
                assert_in_range(k, 0, n - 1);
                assert_int_not_equal(k, i);
                assert_int_equal(workers_opponent(k, round, n), i);
                assert_false(met[i][k]);
                met[i][k] = true;
            }
        }
    }
}

static void test_tables(void **state)
{
    (void)state;
    checkup_texts(&checks_workers);
    checkup_texts(&checks_workers_paths);
    checkup_texts(&checks_jobs);
    checkup_all_seen(&checks_jobs);
    checkup_all_seen(&checks_workers);
    checkup_all_seen(&checks_workers_paths);
    checkup_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),       cmocka_unit_test(test_same),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_work),        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_torn),        cmocka_unit_test(test_tournament),
        cmocka_unit_test(test_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
