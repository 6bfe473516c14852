/* SPDX-License-Identifier: Apache-2.0
 *
 * test_match_context: whole logs. A healthy log full of warnings gives no finding. Among the logs
 * of many ranks the log with the cause is named, with each form of time and without times. The same
 * line is noise in one run and the cause in another.
 */
#include "tests/unit/diagnostics/match_case.h"

/* Expects this first finding at this line; id "": no finding. */
static void finds(const char *text, bool failed, const char *id, uint64_t line)
{
    run1(text, failed);
    const char *got = r->n ? r->findings[0].pattern->id : "";
    if (strcmp(got, id) != 0)
        fail_msg("found \"%s\", want \"%s\"", got, id);
    if (r->n)
        assert_int_equal(r->findings[0].line, line);
    done();
}

/* ---- healthy logs --------------------------------------------------------------------------- */

static const char tensorflow_start[] =
    "2024-05-01 09:59:01.123456: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] "
    "Could "
    "not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared "
    "object file: No such file or directory\n"
    "2024-05-01 09:59:01.123500: I tensorflow/stream_executor/cuda/cudart_stub.cc:29] Ignore above "
    "cudart dlerror if you do not have a GPU set up on your machine.\n"
    "2024-05-01 09:59:02.000001: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] "
    "Unable "
    "to register cuDNN factory: Attempting to register factory for plugin cuDNN when one has "
    "already "
    "been registered\n"
    "2024-05-01 09:59:02.000002: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT "
    "Warning: Could not find TensorRT\n"
    "2024-05-01 09:59:02.000003: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:274] "
    "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    "Epoch 1/3\n"
    "1875/1875 [==============================] - 4s 2ms/step - loss: 0.2912 - accuracy: 0.9153\n"
    "Epoch 3/3\n"
    "1875/1875 [==============================] - 4s 2ms/step - loss: 0.1012 - accuracy: 0.9653\n";

static const char nccl_info[] =
    "node1:101:101 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\n"
    "node1:101:101 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open "
    "shared "
    "object file: No such file or directory : when loading libnccl-net.so\n"
    "node1:101:210 [0] NCCL INFO Failed to open libibverbs.so[.1]\n"
    "node1:101:210 [0] NCCL INFO NET/IB : No device found.\n"
    "node1:101:210 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
    "node1:101:210 [0] NCCL INFO Using network Socket\n"
    "node1:101:210 [0] NCCL INFO Connected all rings\n"
    "step 100 loss 2.31\n"
    "step 200 loss 2.11\n"
    "node1:101:210 [0] NCCL INFO comm 0x55d rank 0 nranks 8 cudaDev 0 busId 3b000 - Destroy "
    "COMPLETE\n";

static const char nccl_teardown[] =
    "step 5000 loss 1.01\n"
    "saved checkpoint to /out/last.pt\n"
    "node1:101:233 [0] proxy.cc:1533 NCCL WARN [Service thread] Accept failed Resource temporarily "
    "unavailable\n"
    "node1:101:233 [0] proxy.cc:1567 NCCL WARN [Proxy Service 0] Failed to execute operation Close "
    "from "
    "rank 0, retcode 3\n"
    "done\n";

static const char noisy_python[] =
    "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid "
    "your "
    "system being overloaded\n"
    "[W socket.cpp:601] [c10d] The client socket cannot be initialized to connect to [node1]:29500 "
    "(errno: 97 - Address family not supported by protocol).\n"
    "/usr/lib/python3/dist-packages/foo.py:3: FutureWarning: error: this will be an error in "
    "version 2\n"
    "Extension horovod.tensorflow has not been built: no such file\n"
    "WARNING: No supported GPU error handler found, errors: 0\n"
    "step 1 loss 2.3\n"
    "Exception ignored in: <function Pool.__del__ at 0x7f0102030405>\n"
    "Traceback (most recent call last):\n"
    "  File \"pool.py\", line 12, in __del__\n"
    "ResourceWarning: unclosed pool\n"
    "/usr/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: resource_tracker: "
    "There "
    "appear to be 6 leaked semaphore objects to clean up at shutdown\n";

/* What programs print at start-up: settings with names that occur in patterns, connection
 * attempts that are repeated. */
static const char settings[] =
    "GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5 TORCH_NCCL_BLOCKING_WAIT=0\n"
    "args: Namespace(find_unused_parameters=False, resume=None, error_if_nonfinite=True)\n"
    "libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.\n"
    "2024-05-01 10:00:00 WARNING Connection refused, retrying in 1 s\n"
    "WARNING: Retrying (Retry(total=4)) after connection broken by 'NewConnectionError()': "
    "/simple/\n"
    "mlx5_core 0000:5e:00.0 ens1f1: Link down\n"
    "mlx5_core 0000:5e:00.1: Port module event: module 1, Cable unplugged\n"
    "W tensorflow/core/common_runtime/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of "
    "memory "
    "trying to allocate 2.2GiB with freed_by_count=0. The caller indicates that this is not a "
    "failure\n"
    "WARNING:tensorflow:Your input ran out of data; interrupting training.\n"
    "    raise RuntimeError('CUDA out of memory')\n"
    "loss: 0.30 nanobatch 3, 2 warnings, 0 errors, exit code 0\n";

static const char hvd_ok[] =
    "hvdrun: all 8 ranks run after 40 ms\n"
    "hvdrun: all 8 ranks are connected (epoch 1) after 90 ms\n"
    "[3]<stdout>:step 1200 loss 0.31 error rate 0.02 (no errors)\n"
    "hvdrun: doctor on node1: warn: /dev/shm has 64 MiB: No space left on device soon (shm-size)\n"
    "hvdrun:   fix: docker run --shm-size=8g\n"
    "[3]<stdout>:checkpoint 137 written, exit code 0, killed 0 workers\n";

static void test_healthy(void **state)
{
    nothing("");
    nothing("\n\n\n");
    nothing(tensorflow_start);
    nothing(nccl_info);
    nothing(nccl_teardown);
    nothing(noisy_python);
    nothing(hvd_ok);
    nothing(settings);
}

/* ---- the same lines, but the job failed ----------------------------------------------------- */

static void test_failed_brings_them_out(void **state)
{
    finds(nccl_info, true, "ib-verbs-missing", 3);
    finds(tensorflow_start, true, "lib-tf-cuda", 1);
    run1(nccl_teardown, true);
    assert_int_equal(r->verdict, MATCH_EFFECTS);
    assert_int_equal(match_exit_code(r), 1);
    done();
}

static void test_failed_later(void **state)
{
    struct err err = {0};
    struct match_opts opts = {.patterns = patterns};
    assert_int_equal(match_create(&opts, &m, &err), 0);
    struct match_source *s = match_open_source(m, "rank.5/stderr", -1);
    match_feed(s, nccl_info, strlen(nccl_info));
    match_close_source(s);
    assert_int_equal(match_finish(m, &r, &err), 0);
    assert_int_equal(r->verdict, MATCH_NOTHING);
    match_result_destroy(r);
    match_set_failed(m);
    assert_int_equal(match_finish(m, &r, &err), 0);
    assert_int_equal(r->verdict, MATCH_FOUND);
    assert_int_equal(r->findings[0].rank, 5);
    done();
}

static void test_unexplained(void **state)
{
    run1("step 1\nmy own words for a failure\n", true);
    assert_int_equal(r->verdict, MATCH_UNEXPLAINED);
    assert_int_equal(r->n, 0);
    assert_int_equal(match_exit_code(r), 3);
    done();
    run1("step 1\nhvdrun: rank 3 on node1 exited with code 7\n", false);
    assert_int_equal(r->verdict, MATCH_UNEXPLAINED);
    assert_string_equal(r->findings[0].pattern->id, "exit-code");
    assert_int_equal(match_exit_code(r), 3);
    done();
}

/* An exception that Python ignores in one rank does not excuse another rank. */
static void test_ignored(void **state)
{
    nothing("[0]<stderr>:Exception ignored in: <function f at 0x7f01>\n"
            "[0]<stderr>:Traceback (most recent call last):\n[0]<stderr>:OSError: closed\n");
    finds("[0]<stderr>:Exception ignored in: <function f at 0x7f01>\n"
          "[3]<stderr>:Traceback (most recent call last):\n[3]<stderr>:OSError: closed\n",
          false, "python-exception", 3);
    finds("[3]<stderr>:OSError: closed\n[0]<stderr>:Exception ignored in: <function f at 0x7f01>\n"
          "hvdrun: rank 3 on node1 exited with code 1\n",
          false, "python-exception", 1);
}

/* ---- many ranks ----------------------------------------------------------------------------- */

static const char *const lost[] = {
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer "
    "[10.0.0.4]:41325",
    "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process "
    "exited or there was a network error, NCCL version 2.21.5",
    "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down.",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
};

/* Writes second s of a minute in one of the time forms of logs. */
static void stamp(char *dst, size_t size, int form, int s)
{
    switch (form) {
    case 0:
        dst[0] = 0;
        break;
    case 1:
        snprintf(dst, size, "2024-05-01T10:00:%02d.250Z ", s);
        break;
    case 2:
        snprintf(dst, size, "[2024-05-01 10:00:%02d,250] ", s);
        break;
    case 3:
        snprintf(dst, size, "May  1 10:00:%02d node1 kernel: ", s);
        break;
    case 4:
        snprintf(dst, size, "E0501 10:00:%02d.250000 4711 main.cc:12] ", s);
        break;
    case 5:
        snprintf(dst, size, "[  %d.250000] ", 7200 + s);
        break;
    default:
        snprintf(dst, size, "[17000000%02d.250000] ", s);
        break;
    }
}

#define RANKS     8
#define FORMS     7
#define THE_CAUSE 5

/* Seven ranks report a lost connection, rank 5 the cause, which has the earliest time in the
 * forms with times. */
static void test_one_cause_of_eight(void **state)
{
    for (int form = 0; form < FORMS; form++) {
        char text[RANKS][1024], name[RANKS][32], when[64];
        struct log_text logs[RANKS];
        for (int i = 0; i < RANKS; i++) {
            stamp(when, sizeof(when), form, i == THE_CAUSE ? 3 : 10 + i);
            const char *last = i == THE_CAUSE
                                   ? "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried "
                                     "to allocate 2.00 GiB."
                                   : lost[i % 4];
            snprintf(text[i], sizeof(text[i]),
                     "step 1\nTraceback (most recent call last):\n  File \"t.py\", line 1\n%s%s\n",
                     when, last);
            snprintf(name[i], sizeof(name[i]), "out/rank.%d/stderr", i);
            logs[i] = (struct log_text){name[i], text[i]};
        }
        r = run_logs(patterns, logs, RANKS, false, &m);
        assert_int_equal(r->verdict, MATCH_FOUND);
        assert_int_equal(r->n, 1);
        assert_string_equal(r->findings[0].pattern->id, "cuda-oom");
        assert_int_equal(r->findings[0].rank, THE_CAUSE);
        assert_int_equal(r->findings[0].line, 4);
        assert_true(r->neffects >= 3);
        assert_int_equal(r->sources, RANKS);
        done();
    }
}

/* One file with the lines of all ranks, as hvdrun and mpirun write it. */
static void test_merged_output(void **state)
{
    run1("[0]<stderr>:ConnectionResetError: [Errno 104] Connection reset by peer\n"
         "[1,2]<stderr>:ConnectionResetError: [Errno 104] Connection reset by peer\n"
         "[6]<stderr>:OSError: [Errno 28] No space left on device: '/ckpt/a.pt'\n"
         "hvdrun: rank 6 on node2 exited with code 1\n",
         false);
    assert_string_equal(r->findings[0].pattern->id, "disk-full");
    assert_int_equal(r->findings[0].rank, 6);
    const struct match_finding *e = find_in(r->effects, r->neffects, "connection-reset");
    assert_non_null(e);
    assert_int_equal(e->count, 2);
    assert_int_equal(e->nranks, 2);
    assert_int_equal(e->ranks[0], 0);
    assert_int_equal(e->ranks[1], 2);
    done();
}

/* Of two causes the earlier one is first, also across forms of time and time zones. */
static void test_earliest(void **state)
{
    struct log_text logs[] = {
        {"rank0.log", "2024-05-01 10:00:09 ERROR CUDA out of memory\n"},
        {"rank1.log", "2024-05-01T12:00:03+02:00 ERROR No space left on device\n"},
        {"rank2.log", "E0501 10:00:05.000000 1 x.cc:1] Too many open files\n"},
    };
    r = run_logs(patterns, logs, 3, false, &m);
    assert_int_equal(r->n, 3);
    assert_string_equal(r->findings[0].pattern->id, "disk-full");
    assert_string_equal(r->findings[1].pattern->id, "too-many-files");
    assert_string_equal(r->findings[2].pattern->id, "cuda-oom");
    assert_int_equal(r->findings[0].rank, 1);
    done();
}

/* Without times the strongest cause is first, then the first source. */
static void test_strongest(void **state)
{
    struct log_text logs[] = {
        {"rank0.log", "No space left on device\n"},
        {"rank1.log", "CUDA out of memory\n"},
    };
    r = run_logs(patterns, logs, 2, false, &m);
    assert_string_equal(r->findings[0].pattern->id, "cuda-oom");
    done();
}

/* A vague line does not hide a more certain one that comes later. */
static void test_vague(void **state)
{
    run1("2024-05-01 10:00:00 unhandled system error, NCCL version 2.14.3\n"
         "2024-05-01 10:00:05 node1:97:176 [0] include/shm.h:28 NCCL WARN Call to posix_fallocate "
         "failed "
         ": No space left on device\n",
         false);
    assert_int_equal(r->n, 1);
    assert_string_equal(r->findings[0].pattern->id, "shm-full");
    assert_non_null(find_in(r->effects, r->neffects, "nccl-system-error"));
    done();
}

/* "of:": one cause explains another. */
static void test_explained(void **state)
{
    finds("Host key verification failed.\n"
          "ORTE was unable to reliably start one or more daemons.\n"
          "it does not know how to route a message\n",
          false, "ssh-refused", 1);
    finds("ORTE was unable to reliably start one or more daemons.\n", false, "mpi-daemons", 1);
    finds("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.\n"
          "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient "
          "shared memory (shm).\n",
          false, "shm-full", 2);
}

/* Nine ranks wait for rank 7: rank 7 is named. */
static void test_absent(void **state)
{
    static const char waited[] = "[E ProcessGroupNCCL.cpp:458] [Rank 0] Watchdog caught collective "
                                 "operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE)\n";
    char name[10][32];
    struct log_text logs[10];
    for (int i = 0; i < 10; i++) {
        snprintf(name[i], sizeof(name[i]), "rank.%d", i);
        logs[i] = (struct log_text){name[i], i == 7 ? "loading batch 42\n" : waited};
    }
    r = run_logs(patterns, logs, 10, false, &m);
    assert_string_equal(r->findings[0].say, "a collective (number 42) waited for a rank that never "
                                            "came; not logged by rank 7");
    done();
    r = run_logs(patterns, logs, 7, false, &m);
    assert_null(strstr(r->findings[0].say, "not logged"));
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_healthy),       cmocka_unit_test(test_failed_brings_them_out),
        cmocka_unit_test(test_failed_later),  cmocka_unit_test(test_unexplained),
        cmocka_unit_test(test_ignored),       cmocka_unit_test(test_one_cause_of_eight),
        cmocka_unit_test(test_merged_output), cmocka_unit_test(test_earliest),
        cmocka_unit_test(test_strongest),     cmocka_unit_test(test_vague),
        cmocka_unit_test(test_explained),     cmocka_unit_test(test_absent),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
