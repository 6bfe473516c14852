/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline and trace: the file is a JSON array at every moment, and contains what happened.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/engine/timeline.h"
#include "core/engine/trace.h"

/* ---- a strict parser of JSON that keeps nothing ---- */

static bool value(const char **p, int depth);

static void space(const char **p)
{
    while (**p == ' ' || **p == '\n' || **p == '\t' || **p == '\r')
        ++*p;
}

static bool take(const char **p, char c)
{
    space(p);
    if (**p != c)
        return false;
    ++*p;
    return true;
}

static bool string(const char **p)
{
    if (!take(p, '"'))
        return false;
    for (; **p && **p != '"'; ++*p) {
        if ((unsigned char)**p < 0x20)
            return false;
        if (**p == '\\') {
            ++*p;
            if (!strchr("\"\\/bfnrtu", **p))
                return false;
            for (int i = 0; **p == 'u' && i < 4; i++) {
                if (!isxdigit((unsigned char)(*p)[i + 1]))
                    return false;
            }
        }
    }
    return take(p, '"');
}

static bool sequence(const char **p, char close, bool keys, int depth)
{
    if (take(p, close))
        return true;
    do {
        if (keys && !(string(p) && take(p, ':')))
            return false;
        if (!value(p, depth + 1))
            return false;
    } while (take(p, ','));
    return take(p, close);
}

static bool value(const char **p, int depth)
{
    space(p);
    if (depth > 10)
        return false;
    if (**p == '"')
        return string(p);
    if (take(p, '['))
        return sequence(p, ']', false, depth);
    if (take(p, '{'))
        return sequence(p, '}', true, depth);
    char *end;
    if (**p != '-' && !isdigit((unsigned char)**p))
        return false;
    strtod(*p, &end);
    *p = end;
    return true;
}

static bool is_json(const char *text)
{
    bool ok = value(&text, 0);
    space(&text);
    return ok && *text == 0;
}

/* ---- helpers ---- */

static char dir[64];

static int set_up(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/hvd-timeline-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    return rmdir(dir);
}

static char *read_trace(const char *path)
{
    char *text = NULL;
    size_t len;
    assert_int_equal(fd_read_file(path, 64 << 20, &text, &len), 0);
    assert_true(is_json(text));
    return text;
}

static struct timeline_op op(const char *name, uint64_t start)
{
    return (struct timeline_op){.kind = HVD_ALLREDUCE,
                                .dtype = HVD_FLOAT32,
                                .ndim = 2,
                                .shape = {3, 4},
                                .submit_ns = start,
                                .batch_ns = start + 1000,
                                .start_ns = start + 2000,
                                .end_ns = start + 5000,
                                .algorithm = "shm_slice",
                                .name = name};
}

/* Not with strstr(): in each call a sanitizer checks the whole rest of the text. */
static int count(const char *text, const char *what)
{
    size_t len = strlen(what);
    int n = 0;
    for (const char *p = text; *p; p++)
        n += *p == *what && strncmp(p, what, len) == 0;
    return n;
}

/* ---- tests ---- */

static void test_events(void **state)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/a.json", dir);
    struct timeline *t = NULL;
    assert_int_equal(timeline_open(path, 0, true, &t, NULL), 0);
    assert_non_null(t);
    free(read_trace(path)); /* valid before anything happened */
    uint64_t now = clock_ns();
    struct timeline_op a = op("grad.0", now), b = op("grad.1", now + 10000);
    timeline_cycle(t, now);
    timeline_add(t, &a);
    timeline_add(t, &b);
    timeline_add(t, &a);
    timeline_close(t);
    char *text = read_trace(path);
    assert_int_equal(count(text, "\"allreduce.grad.0\""), 1);
    assert_int_equal(count(text, "\"allreduce.grad.1\""), 1);
    assert_int_equal(count(text, "NEGOTIATE_ALLREDUCE"), 3);
    assert_int_equal(count(text, "\"name\":\"ALLREDUCE\""), 3);
    assert_int_equal(count(text, "\"QUEUE\""), 3);
    assert_int_equal(count(text, "\"shm_slice\""), 3);
    assert_int_equal(count(text, "\"ph\":\"B\""), count(text, "\"ph\":\"E\""));
    assert_int_equal(count(text, "\"dtype\":\"float32\",\"shape\":\"[3, 4]\""), 3);
    assert_int_equal(count(text, "CYCLE_START"), 1);
    assert_int_equal(count(text, "start_time_since_epoch_in_micros"), 1);
    free(text);
    unlink(path);
}

/* A tensor of a set is not the world's tensor of the same name. */
static void test_sets(void **state)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/set.json", dir);
    struct timeline *t = NULL;
    assert_int_equal(timeline_open(path, 0, false, &t, NULL), 0);
    struct timeline_op world = op("x", clock_ns()), one = world, two = world, barrier = world;
    one.set = 1;
    one.set_text = "set 1 (ranks 0, 2)";
    two.set = barrier.set = 2;
    two.set_text = barrier.set_text = "set 2 (ranks 0, 1)";
    barrier.kind = HVD_BARRIER;
    barrier.status = -5;
    timeline_add(t, &world);
    timeline_add(t, &one);
    timeline_add(t, &one);
    timeline_add(t, &two);
    timeline_add(t, &barrier);
    timeline_close(t);
    char *text = read_trace(path);
    assert_int_equal(count(text, "\"allreduce.x\""), 1);
    assert_int_equal(count(text, "\"allreduce.x (set 1)\""), 1);
    assert_int_equal(count(text, "\"allreduce.x (set 2)\""), 1);
    assert_int_equal(count(text, "\"labels\":\"set 1 (ranks 0, 2)\""), 1);
    assert_int_equal(count(text, "\"labels\":\"set 2 (ranks 0, 1)\""), 2);
    assert_int_equal(count(text, "\"shape\":\"[3, 4]\",\"set\":1}"), 2);
    assert_int_equal(count(text, "\"shape\":\"[3, 4]\"}"), 1);
    assert_int_equal(count(text, "{\"set\":2,\"status\":-5}"), 1);
    free(text);
    unlink(path);
}

static void test_names_of_any_bytes(void **state)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/b.json", dir);
    struct timeline *t = NULL;
    assert_int_equal(timeline_open(path, 0, false, &t, NULL), 0);
    static const char german[] =
        "gr\xc3\xb6\xc3\x9f" /* the string is split, or the e would be one more hex digit */
        "e";
    static const char *const names[] = {"quote\"back\\slash\n\t\x01", german,
                                        "\xff\xfe\xc0\x80\xed\xa0\x80\xf5", "\xe2\x82", "\x7f"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct timeline_op o = op(names[i], clock_ns());
        timeline_add(t, &o);
    }
    timeline_close(t);
    char *text = read_trace(path);
    assert_int_equal(count(text, german), 1);
    for (const unsigned char *p = (unsigned char *)text; *p; p++)
        assert_true(*p != 0xff && *p != 0xc0 && *p != 0xed);
    free(text);
    unlink(path);
}

/* Many tensors, faster than the writer: operations may be dropped, and the file then says how
 * many. */
static void test_flood(void **state)
{
    char path[96], name[32];
    snprintf(path, sizeof(path), "%s/c.json", dir);
    struct timeline *t = NULL;
    assert_int_equal(timeline_open(path, 0, false, &t, NULL), 0);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof(name), "t%d", i % 5000);
        struct timeline_op o = op(name, clock_ns());
        timeline_add(t, &o);
    }
    timeline_close(t);
    char *text = read_trace(path);
    assert_int_equal(count(text, "\"ph\":\"B\""), count(text, "\"ph\":\"E\""));
    bool all = count(text, "NEGOTIATE_ALLREDUCE") == 20000;
    assert_true(all || count(text, "operations are missing here") > 0);
    free(text);
    unlink(path);
}

/* While the timeline is open, the file is valid and, once the writer has run, contains what was
 * added so far. */
static void test_valid_before_the_end(void **state)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/d.json", dir);
    struct timeline *t = NULL;
    struct timespec nap = {.tv_nsec = 20000000};
    assert_int_equal(timeline_open(path, 0, false, &t, NULL), 0);
    for (int n = 1; n <= 3; n++) {
        struct timeline_op o = op("x", clock_ns());
        bool there = false;
        timeline_add(t, &o);
        for (int i = 0; i < 1000 && !there; i++) {
            char *text = NULL;
            size_t len;
            nanosleep(&nap, NULL);
            assert_int_equal(fd_read_file(path, 64 << 20, &text, &len), 0);
            there = is_json(text) && count(text, "NEGOTIATE_ALLREDUCE") == n;
            free(text);
        }
        assert_true(there);
    }
    timeline_close(t);
    unlink(path);
}

/* Redirects standard error to path. Returns a copy of the old descriptor. */
static int redirect(const char *path)
{
    int keep = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(keep >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    close(fd);
    return keep;
}

/* A file that may not grow, as on a full disk: one message, and the file can be loaded. */
static void test_full_disk(void **state)
{
    char path[96], log[96], name[32];
    struct rlimit old, small;
    struct timeline *t = NULL;
    snprintf(path, sizeof(path), "%s/full.json", dir);
    snprintf(log, sizeof(log), "%s/log", dir);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){.rlim_cur = 16384, .rlim_max = old.rlim_max};
    int keep = redirect(log);
    assert_int_equal(timeline_open(path, 0, false, &t, NULL), 0);
    int rc = setrlimit(RLIMIT_FSIZE, &small);
    for (int round = 0; round < 20 && rc == 0; round++) { /* several writes fail */
        struct timespec nap = {.tv_nsec = 10000000};
        for (int i = 0; i < 100; i++) {
            snprintf(name, sizeof(name), "t%d.%d", round, i);
            struct timeline_op o = op(name, clock_ns());
            timeline_add(t, &o);
        }
        nanosleep(&nap, NULL);
    }
    timeline_close(t);
    setrlimit(RLIMIT_FSIZE, &old);
    dup2(keep, STDERR_FILENO);
    close(keep);
    assert_int_equal(rc, 0);
    free(read_trace(path)); /* reads it as JSON */
    char *said = NULL;
    size_t len;
    assert_int_equal(fd_read_file(log, 65536, &said, &len), 0);
    assert_int_equal(count(said, "the timeline ends here, after "), 1);
    assert_int_equal(count(said, "File too large. What is in the file can be loaded"), 1);
    free(said);
    unlink(path);
    unlink(log);
}

static void test_paths(void **state)
{
    char path[96], want[96];
    struct err err = {0};
    struct timeline *t = (struct timeline *)dir;
    snprintf(path, sizeof(path), "%s/plain.json", dir);
    assert_int_equal(timeline_open(path, 3, false, &t, &err), 0);
    assert_null(t);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof(path), "%s/trace.%%r.json", dir);
    snprintf(want, sizeof(want), "%s/trace.3.json", dir);
    assert_int_equal(timeline_open(path, 3, false, &t, &err), 0);
    assert_non_null(t);
    timeline_close(t);
    free(read_trace(want));
    unlink(want);
    assert_int_equal(timeline_open("/nowhere/x.json", 0, false, &t, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "/nowhere/x.json"));
    assert_true(timeline_open(dir, 0, false, &t, &err) < 0);
    assert_true(timeline_open("/dev/null", 0, false, &t, &err) < 0);
    timeline_close(NULL);
}

static void test_failed_operation(void **state)
{
    struct trace t;
    struct buf out = {0};
    buf_put(&out, "[", 1);
    assert_int_equal(trace_init(&t, 0, 0, 0, &out), 0);
    struct timeline_op o = op("x", 100);
    o.batch_ns = o.start_ns = 0;
    o.status = -ECONNRESET;
    trace_op(&t, &o, &out);
    trace_dropped(&t, 3, 9, &out);
    buf_put(&out, "]", 2);
    assert_true(is_json((char *)out.data));
    assert_int_equal(count((char *)out.data, "\"status\":-104"), 1);
    assert_int_equal(count((char *)out.data, "\"ph\":\"B\""), 2);
    assert_int_equal(count((char *)out.data, "\"ph\":\"E\""), 2);
    trace_fini(&t);
    buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),    cmocka_unit_test(test_names_of_any_bytes),
        cmocka_unit_test(test_flood),     cmocka_unit_test(test_valid_before_the_end),
        cmocka_unit_test(test_paths),     cmocka_unit_test(test_failed_operation),
        cmocka_unit_test(test_full_disk), cmocka_unit_test(test_sets),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
