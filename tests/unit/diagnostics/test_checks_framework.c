/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks_framework: libhvd, Horovod's extensions, the C library and Python, good and bad, on
 * captured machines; the output of --check-build.
 */
#include "tests/unit/diagnostics/checkup.h"

#include "diagnostics/backends.h"

#define OBJECT(i, kind, rest)                                                                      \
    "object." i ".path /s/" kind i ".so\nobject." i ".kind " kind "\nobject." i ".glibc "          \
    "2.17\n" rest

static void test_build(void **state)
{
    checkup_new();
    checkup_answer("hvd",
                   "lib.0.error libhvd.so.0: cannot open shared object file: No such file\n");
    checkup_expect("hvd-build", CHECK_INFO, "libhvd is neither");
    assert_non_null(
        strstr(checkup.result.summary, "no framework, NCCL or MPI found on this machine"));
    checkup_answer("hvd", "lib.0.error /l/libhvd.so: undefined symbol: x\n");
    checkup_expect("hvd-build", CHECK_FAIL, "undefined symbol");
    checkup_answer("hvd", "lib.0.loaded /l/libhvd.so.0.1\nlib.0.version 0.1\n");
    checkup_answer("framework", "torch.0.path /t\ntorch.0.version 2.6.0\n");
    checkup_answer("nccl", "lib.0.path /n\nlib.0.text 2.27.7\n");
    checkup_answer("mpi", "lib.0.path /m\nlib.0.version 4.1.4\nlib.0.vendor openmpi\n");
    checkup_expect("hvd-build", CHECK_PASS,
                   "libhvd 0.1 (/l/libhvd.so.0.1); PyTorch 2.6.0, NCCL "
                   "2.27.7, Open MPI 4.1.4");
}

static void test_horovod(void **state)
{
    checkup_new();
    checkup_answer("elf", "glibc 2.36\n");
    checkup_expect("horovod-build-nccl", CHECK_PASS, "no Horovod");
    checkup_expect("horovod-lib-links", CHECK_PASS, "no extension");
    checkup_answer("elf", "glibc 2.36\n" OBJECT("0", "torch", "object.0.nccl /n\n")
                              OBJECT("1", "horovod", "object.1.mpi /m/libmpi.so.40\n"));
    checkup_expect("horovod-build-nccl", CHECK_INFO, "fine on CPUs");
    checkup_expect("horovod-lib-links", CHECK_PASS, "1 extension finds all libraries, MPI from /m");
    checkup.setting.profiles = PROFILE_GPU;
    checkup_expect("horovod-build-nccl", CHECK_WARN, "without NCCL (/s/horovod1.so)");
    checkup_answer("elf", OBJECT("0", "horovod", "object.0.nccl /n/libnccl.so.2\n"));
    checkup_expect("horovod-build-nccl", CHECK_PASS, "/n/libnccl.so.2");
    checkup_answer("elf", OBJECT("0", "horovod", "object.0.nccl_inside 2.10.3\n"));
    checkup_expect("horovod-build-nccl", CHECK_PASS, "2.10.3");
    checkup_answer("elf", OBJECT("0", "horovod",
                                 "object.0.nccl missing\nobject.0.missing "
                                 "libnccl.so.2 libmpi.so.12\n"));
    checkup_expect("horovod-build-nccl", CHECK_FAIL, "needs libnccl");
    checkup_expect("horovod-lib-links", CHECK_FAIL, "missing libnccl.so.2 libmpi.so.12");
    checkup_answer("elf", OBJECT("0", "hvd", "object.0.error Exec format error\n"));
    checkup_expect("horovod-lib-links", CHECK_FAIL, "damaged, Exec format error");
    checkup_answer("elf", "state failed 2\n");
    checkup_expect("horovod-lib-links", CHECK_SKIP, "No such file");
}

static void test_glibc(void **state)
{
    checkup_new();
    checkup_answer("elf", "machine x86_64\n");
    checkup_expect("glibc-min", CHECK_SKIP, "does not report");
    checkup_answer("elf", "glibc 2.36\n" OBJECT("0", "hvd", ""));
    checkup_expect("glibc-min", CHECK_PASS, "2.36 is new enough for 1 extension");
    checkup_answer("elf", "glibc 2.27\n" OBJECT("0", "hvd", ""));
    checkup_expect("glibc-min", CHECK_WARN, "2.28");
    checkup_answer("elf", "glibc 2.23\n");
    checkup_expect("glibc-min", CHECK_FAIL, "2.25");
    checkup_answer("elf", "glibc 2.31\nobject.0.path /s/x.so\nobject.0.glibc 2.34\n");
    checkup_expect("glibc-min", CHECK_FAIL, "glibc is 2.31, /s/x.so needs 2.34");
    checkup_answer("elf", "glibc 2.31\nobject.0.path /s/x.so\nobject.0.glibc 2.4\n"); /* 4 < 31 */
    checkup_expect("glibc-min", CHECK_PASS, "2.31");
}

static void test_python(void **state)
{
    checkup_new();
    checkup_answer("framework", "glibc 2.36\n");
    checkup_expect("python-env", CHECK_INFO, "no python3");
    checkup_answer("framework", "python.0.path /usr/bin/python3\npython.0.version 3.11\n"
                                "torch.0.path /usr/lib/python3/dist-packages/torch\n"
                                "torch.0.version 2.6.0\n");
    checkup_expect("python-env", CHECK_PASS, "is Python 3.11, torch 2.6.0, hvd not installed");
    checkup_answer("framework", "python.0.path /usr/bin/python3\npython.0.version 3.7\n");
    checkup_expect("python-env", CHECK_WARN, "3.9");
    checkup_answer("framework", "python.0.path /usr/bin/python3\npython.0.version 3.11\n"
                                "torch.0.path /opt/v/lib/python3.12/site-packages/torch\n"
                                "torch.0.version 2.6.0\n");
    checkup_expect("python-env", CHECK_WARN, "torch is installed for Python 3.12");
    checkup_answer("framework",
                   "python.0.path /v/bin/python3\ntorch.0.path /a\ntorch.0.version 2.6.0\n"
                   "torch.1.path /b\ntorch.1.version 2.5.0\n");
    checkup_expect("python-env", CHECK_INFO, "2 times");
}

static void test_backends(void **state)
{
    struct backends b;
    char text[256];
    assert_int_equal(backends_look(&b), 0); /* without hvd-probe nothing is known */
    memset(&b, 0, sizeof(b));
    backends_text(&b, text, sizeof(text));
    assert_string_equal(text, "no framework, NCCL or MPI found on this machine");
    snprintf(b.pmix, sizeof(b.pmix), "4.2.2");
    snprintf(b.horovod, sizeof(b.horovod), "0.28.1");
    backends_text(&b, text, sizeof(text));
    assert_string_equal(text, "Horovod 0.28.1, PMIx 4.2.2");
    backends_text(&b, text, 8); /* the text is cut to the size of the buffer */
    assert_true(strlen(text) < 8);
}

static void test_tables(void **state)
{
    checkup_texts(&checks_framework);
    checkup_all_seen(&checks_framework);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),    cmocka_unit_test(test_horovod),
        cmocka_unit_test(test_glibc),    cmocka_unit_test(test_python),
        cmocka_unit_test(test_backends), cmocka_unit_test(test_tables),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    checkup_remove();
    return rc;
}
