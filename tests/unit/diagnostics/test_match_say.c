/* SPDX-License-Identifier: Apache-2.0
 *
 * test_match_say: the report of a finding: Xids and the effect of options on them, the sentence,
 * the lines that belong to it, the exception that ended a program.
 */
#include "tests/unit/diagnostics/match_case.h"

/* ---- Xids ----------------------------------------------------------------------------------- */

static void test_xid(void **state)
{
    run1("[  100.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has "
         "fallen "
         "off the bus.\n"
         "[  100.000002] NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.\n"
         "[  100.100000] NVRM: Xid (PCI:0000:3b:00): 45, pid=4711, name=python, Ch 00000010\n"
         "[  101.000000] NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 "
         "(None) to "
         "0x2 (Node Reboot Required)\n",
         false);
    assert_string_equal(r->findings[0].pattern->id, "xid-79");
    assert_int_equal(r->findings[0].pattern->action, ACTION_REBOOT);
    assert_string_equal(r->findings[0].say,
                        "GPU PCI:0000:3b:00: it fell off the PCIe bus (Xid 79)");
    assert_int_equal(r->n, 1);
    assert_non_null(find_in(r->effects, r->neffects, "xid-45"));
    assert_non_null(find_in(r->effects, r->neffects, "gpu-lost"));
    assert_non_null(find_in(r->notes, r->nnotes, "xid-154"));
    done();
    nothing("NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row marked for remapping\n");
}

/* Experts disagree whether Xids 63 and 92 are a cause: the options as_cause and as_noise decide. */
static void test_configured(void **state)
{
    static const char text[] = "NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper\n"
                               "CUDA out of memory\n";
    struct match_opts opts = {.patterns = patterns, .as_cause = "xid-63", .as_noise = "cuda-oom"};
    assert_int_equal(match_create(&opts, &m, NULL), 0);
    struct match_source *s = match_open_source(m, "dmesg", -1);
    match_feed(s, text, strlen(text));
    match_close_source(s);
    assert_int_equal(match_finish(m, &r, NULL), 0);
    assert_int_equal(r->n, 1);
    assert_string_equal(r->findings[0].pattern->id, "xid-63");
    assert_int_equal(r->findings[0].as, MATCH_AS_CAUSE);
    done();
}

/* ---- the sentence ---------------------------------------------------------------------------- */

static void says(const char *text, const char *say)
{
    run1(text, false);
    assert_int_equal(r->n, 1);
    assert_string_equal(r->findings[0].say, say);
    done();
}

static void test_say(void **state)
{
    says("Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB\n",
         "the kernel killed a process because memory ran out (python)");
    says("python invoked oom-killer: order=0\n",
         "the kernel killed a process because memory ran out");
    says("Fatal Python error: Segmentation fault\n", "a process crashed (segmentation fault)");
    says("ImportError: libnuma.so.1: cannot open shared object file\n",
         "a library for topology or networks is missing: libnuma.so.1");
}

/* ---- lines that belong to a finding -------------------------------------------------------- */

static void test_detail(void **state)
{
    run1("W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be "
         "reduced, "
         "gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for "
         "more "
         "than 60 seconds.\nMissing ranks:\n3: [grad/a, grad/b]\n\nstep\n",
         false);
    assert_string_equal(r->findings[0].pattern->id, "horovod-stall");
    assert_non_null(strstr(r->findings[0].detail, "3: [grad/a, grad/b]"));
    assert_null(strstr(r->findings[0].detail, "step"));
    done();
    run1("[1]<stderr>:Traceback (most recent call last):\n[0]<stdout>:step 7\n"
         "[1]<stderr>:  File \"t.py\", line 3\n[1]<stderr>:my.Oops: no more\n",
         false);
    assert_string_equal(r->findings[0].pattern->id, "python-traceback");
    assert_string_equal(r->findings[0].detail, "my.Oops: no more");
    done();
}

static void test_exception_is_the_cause(void **state)
{
    struct log_text logs[] = {
        {"rank.0",
         "Traceback (most recent call last):\n  File \"t.py\"\nConnectionResetError: [Errno "
         "104] Connection reset by peer\n"},
        {"rank.1",
         "Traceback (most recent call last):\n  File \"t.py\"\nValueError: bad label 7\n"},
    };
    r = run_logs(patterns, logs, 2, false, &m);
    assert_int_equal(r->verdict, MATCH_FOUND);
    assert_string_equal(r->findings[0].say,
                        "the program ended with an exception of its own: ValueError: bad label 7");
    assert_int_equal(r->findings[0].rank, 1);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_xid),
        cmocka_unit_test(test_configured),
        cmocka_unit_test(test_say),
        cmocka_unit_test(test_detail),
        cmocka_unit_test(test_exception_is_the_cause),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
