/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of agent/status and agent/table: responses of coordinators, also of older and hostile ones,
 * and the screen that is made of them.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/status.h"
#include "agent/table.h"
#include "core/base/cleanup.h"

static const char whole[] =
    "{\"job\": \"t-1\", \"name\": \"t-1\", \"state\": \"waiting\", \"size\": 3, \"np\": 4,"
    " \"elastic\": true, \"asked_change\": 3,"
    " \"min_np\": 2, \"max_np\": 8, \"epoch\": 3, \"change\": 2, \"restarts\": 1,"
    " \"waiting_for\": \"1 rank on h2\","
    " \"last_change\": {\"epoch\": 3, \"cause\": \"rank 2 on h2 (pid 71) was ended by signal 9\","
    " \"unix_ms\": 1000000, \"ms\": 6.25}, \"repair_ms\": {\"last\": 6.25, \"max\": 9},"
    " \"throughput\": {\"batches_per_s\": 312, \"bytes_per_s\": 1288490188.8},"
    " \"findings\": [{}, {}], \"members\": ["
    " {\"member\": 3, \"rank\": 2, \"host\": \"h1\", \"state\": \"active\", \"pid\": 13,"
    "  \"batches\": 7, \"bytes\": 9, \"idle_ms\": 20},"
    " {\"member\": 2, \"rank\": -1, \"host\": \"h2\", \"state\": \"failed\", \"pid\": 71},"
    " {\"member\": 4, \"rank\": -1, \"host\": \"h2\", \"state\": \"running\", \"pid\": 14},"
    " {\"member\": 5, \"rank\": -1, \"host\": \"h2\", \"state\": \"arrived\", \"pid\": 15},"
    " {\"member\": 6, \"rank\": -1, \"host\": \"h2\", \"state\": \"ready\", \"pid\": 16},"
    " {\"member\": 0, \"rank\": 0, \"host\": \"h1\", \"state\": \"active\", \"pid\": 11,"
    "  \"batches\": 123456, \"idle_ms\": 12},"
    " {\"member\": 1, \"rank\": 1, \"host\": \"h1\", \"state\": \"active\", \"pid\": 12,"
    "  \"leaving\": true, \"batches\": 0, \"idle_ms\": 0}]}";

static int read_text(const char *text, struct status *s, struct err *err)
{
    auto_json json_t *j = NULL;
    assert_int_equal(json_read(text, strlen(text), "a status", &j, NULL), 0);
    return status_read(j, s, err);
}

/* Returns the screen as one text. The caller frees it. */
static char *screen(const struct status *s, bool all)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    assert_int_equal(status_print(s, "t-1", 400000, 1014000, all, f), 0);
    fclose(f);
    return text;
}

static void test_whole(void **state)
{
    struct status s;
    struct err err = {0};
    (void)state;
    if (read_text(whole, &s, &err) < 0)
        fail_msg("%s", err.msg);
    assert_true(s.elastic);
    assert_int_equal(s.n, 7);
    assert_int_equal(s.change, 2);
    assert_int_equal(status_running(&s), 6);
    auto_free char *text = screen(&s, false);
    assert_string_equal(text,
                        "t-1: waiting, 3 of 4 ranks (2 to 8), epoch 3, up 10 min\n"
                        "  waiting for   1 rank on h2\n"
                        "  asked for     change 3; 2 is in effect\n"
                        "  last change   14 s ago, in 6.2 ms: rank 2 on h2 (pid 71) was ended by "
                        "signal 9\n"
                        "  recovery      last 6.2 ms, longest 9.0 ms\n"
                        "  replaced      1 rank\n"
                        "  throughput    312.0 batches/s, 1.2 GiB/s\n"
                        "  the doctor    has 2 findings: run hvd-doctor on the hosts to see all\n"
                        "\n"
                        "RANK  MEMBER  HOST  PID  BATCHES  LAST BATCH  STATE\n"
                        "   0       0  h1     11   123456       12 ms  active\n"
                        "   1       1  h1     12        0           -  leaving\n"
                        "   2       3  h1     13        7       20 ms  active\n"
                        "   -       4  h2     14        0           -  starting\n"
                        "   -       5  h2     15        0           -  starting\n"
                        "   -       6  h2     16        0           -  ready to enter\n"
                        "(and 1 that ended a short while ago: -v)\n");
    auto_free char *all = screen(&s, true);
    assert_non_null(strstr(all, "   -       2  h2     71        0           -  failed\n"));
    assert_null(strstr(all, "a short while"));
    status_fini(&s);
}

/* Sets, and the rank that is nearest to its limit. Ended members do not count. */
static void test_sets(void **state)
{
    struct status s;
    static const char members[] =
        "{\"job\": \"a\", \"size\": 3, \"epoch\": 1, \"ranks\": ["
        "{\"rank\": 0, \"pid\": 5, \"sets\": 2, \"descriptors\": 50, \"descriptors_max\": 1000},"
        "{\"rank\": 1, \"pid\": 6, \"sets\": 1, \"descriptors\": 40, \"descriptors_max\": 100},"
        "{\"rank\": 2, \"pid\": 7},"
        "{\"rank\": 3, \"pid\": 8, \"state\": \"failed\", \"sets\": 9, \"descriptors\": 9,"
        " \"descriptors_max\": 9}]}";
    (void)state;
    assert_int_equal(read_text(members, &s, NULL), 0);
    auto_free char *text = screen(&s, false);
    assert_non_null(strstr(
        text, "\n  sets          rank 0 is in 2; rank 1 has 40 of at most 100 descriptors\n"));
    s.members[0].descriptors_max = s.members[1].descriptors_max = 0;
    auto_free char *unknown = screen(&s, false);
    assert_non_null(strstr(unknown, "\n  sets          rank 0 is in 2\n"));
    s.members[0].sets = s.members[1].sets = 0;
    auto_free char *none = screen(&s, false);
    assert_null(strstr(none, "  sets  "));
    status_fini(&s);
}

/* The host with the least memory left, with the shared memory of all its ranks in sets. */
static void test_memory(void **state)
{
    struct status s;
    static const char members[] =
        "{\"job\": \"a\", \"size\": 4, \"epoch\": 1, \"ranks\": ["
        "{\"rank\": 0, \"host\": \"h1\", \"sets\": 1, \"segments\": 1024, \"memory_left\": "
        "1073741824,"
        " \"memory_limit\": 2147483648},"
        "{\"rank\": 1, \"host\": \"h2\", \"sets\": 1, \"segments\": 1048576, \"memory_left\": "
        "7340032,"
        " \"memory_limit\": 67108864},"
        "{\"rank\": 2, \"host\": \"h2\", \"sets\": 1, \"segments\": 524288, \"memory_left\": "
        "8388608,"
        " \"memory_limit\": 67108864},"
        "{\"rank\": 3, \"host\": \"h3\", \"state\": \"failed\", \"sets\": 1, \"memory_left\": 1,"
        " \"memory_limit\": 2}]}";
    (void)state;
    assert_int_equal(read_text(members, &s, NULL), 0);
    auto_free char *text = screen(&s, false);
    assert_non_null(strstr(text, "\n  memory        shared segments on h2 take 1.5 MiB; 7.0 MiB of "
                                 "64.0 MiB are left there\n"));
    s.members[0].memory_limit = s.members[1].memory_limit = s.members[2].memory_limit = 0;
    auto_free char *unknown = screen(&s, false);
    assert_null(strstr(unknown, "  memory  "));
    status_fini(&s);
}

/* The rank whose GPU has the least memory left; without memory the one with the most. */
static void test_communicators(void **state)
{
    struct status s;
    static const char members[] =
        "{\"job\": \"a\", \"size\": 4, \"epoch\": 1, \"ranks\": ["
        "{\"rank\": 0, \"sets\": 1, \"communicators\": 2, \"gpu_memory_left\": 8388608,"
        " \"gpu_memory\": 67108864},"
        "{\"rank\": 1, \"sets\": 1, \"communicators\": 3, \"gpu_memory_left\": 7340032,"
        " \"gpu_memory\": 67108864},"
        "{\"rank\": 2, \"sets\": 1, \"communicators\": 9},"
        "{\"rank\": 3, \"state\": \"failed\", \"sets\": 1, \"communicators\": 9,"
        " \"gpu_memory_left\": 1, \"gpu_memory\": 2}]}";
    (void)state;
    assert_int_equal(read_text(members, &s, NULL), 0);
    auto_free char *text = screen(&s, false);
    assert_non_null(strstr(text,
                           "\n  communicators rank 1 has 3 of NCCL's; 7.0 MiB of 64.0 MiB were "
                           "left on its GPU\n"));
    s.members[0].gpu_memory = s.members[1].gpu_memory = 0;
    auto_free char *unknown = screen(&s, false);
    assert_non_null(strstr(unknown, "\n  communicators rank 2 has 9 of NCCL's\n"));
    s.members[0].communicators = s.members[1].communicators = s.members[2].communicators = 0;
    auto_free char *none = screen(&s, false);
    assert_null(strstr(none, "  communicators"));
    status_fini(&s);
}

/* Each broken set once, although all its ranks report it; not those of ranks that have ended. */
static void test_broken_sets(void **state)
{
    struct status s;
    static const char members[] = "{\"job\": \"a\", \"size\": 3, \"epoch\": 1, \"ranks\": ["
                                  "{\"rank\": 0, \"pid\": 5, \"state\": \"active\", \"sets\": 2, "
                                  "\"broken\": 2, \"broken_sets\": ["
                                  " {\"set\": 7, \"since\": 1000000, \"text\": \"set 7 (ranks 0, "
                                  "1) has lost 1 of its 3 ranks\"},"
                                  " {\"set\": 2, \"since\": 1011000, \"text\": \"set 2 (rank "
                                  "0\\u001b) has lost 1 of its 2 ranks\"}]},"
                                  "{\"rank\": 1, \"pid\": 6, \"state\": \"active\", \"sets\": 1, "
                                  "\"broken\": 1, \"broken_sets\": ["
                                  " {\"set\": 7, \"since\": 1000100, \"text\": \"set 7 (ranks 0, "
                                  "1) has lost 1 of its 3 ranks\"}]},"
                                  "{\"rank\": 2, \"pid\": 7, \"state\": \"failed\", \"sets\": 1, "
                                  "\"broken\": 1, \"broken_sets\": ["
                                  " {\"set\": 9, \"since\": 1, \"text\": \"set 9\"}]}]}";
    (void)state;
    assert_int_equal(read_text(members, &s, NULL), 0);
    assert_int_equal(s.nbroken, 2);
    auto_free char *text = screen(&s, false);
    assert_non_null(strstr(text,
                           "\n  broken set    set 2 (rank 0?) has lost 1 of its 2 ranks, 3 s ago: "
                           "all its operations fail until the lost ranks are replaced, or it is "
                           "removed\n"
                           "  broken set    set 7 (ranks 0, 1) has lost 1 of its 3 ranks, 14 s "));
    assert_non_null(strstr(text, "  active, 2 broken sets\n"));
    assert_non_null(strstr(text, "  active, 1 broken set\n"));
    assert_null(strstr(text, "failed,"));
    assert_null(strstr(text, "set 9"));
    status_fini(&s);
}

/* A fixed job, and a coordinator that reports few fields. */
static void test_least(void **state)
{
    struct status s;
    (void)state;
    assert_int_equal(read_text("{\"job\": \"a\", \"size\": 1, \"epoch\": 0, \"ranks\": [{\"rank\": "
                               "0, \"host\": \"x\", \"state\": \"running\", \"pid\": 5}]}",
                               &s, NULL),
                     0);
    assert_false(s.elastic);
    assert_string_equal(s.state, "starting");
    auto_free char *text = screen(&s, false);
    assert_string_equal(text,
                        "t-1: starting, no rank is in a world yet, 1 started, epoch 0, up 10 min\n"
                        "\n"
                        "RANK  MEMBER  HOST  PID  BATCHES  LAST BATCH  STATE\n"
                        "   0       0  x       5        0           -  running\n");
    status_fini(&s);
    assert_int_equal(read_text("{\"job\": \"a\", \"ranks\": []}", &s, NULL), 0);
    status_fini(&s);
}

/* A job that keeps places: rank 1 was lost, its replacement starts. */
static void test_places(void **state)
{
    struct status s;
    (void)state;
    assert_int_equal(
        read_text("{\"job\": \"a\", \"size\": 2, \"np\": 3, \"epoch\": 2, \"elastic\": true,"
                  " \"min_np\": 1, \"max_np\": 3, \"ranks\": ["
                  "{\"rank\": 0, \"place\": 0, \"host\": \"x\", \"state\": \"active\", \"pid\": 5},"
                  "{\"rank\": 1, \"place\": 2, \"member\": 2, \"host\": \"x\", \"state\": "
                  "\"active\", \"pid\": 7},"
                  "{\"rank\": -1, \"member\": 3, \"host\": \"x\", \"state\": \"running\", \"pid\": "
                  "8}]}",
                  &s, NULL),
        0);
    auto_free char *text = screen(&s, false);
    assert_non_null(strstr(text,
                           "RANK  PLACE  MEMBER  HOST  PID  BATCHES  LAST BATCH  STATE\n"
                           "   0      0       0  x       5        0           -  active\n"
                           "   1      2       2  x       7        0           -  active\n"
                           "   -      -       3  x       8        0           -  starting\n"));
    status_fini(&s);
}

/* If there are more members than lines on a screen, the table has a line per host. */
static void test_many(void **state)
{
    struct status s;
    auto_json json_t *j =
        json_pack("{s:s, s:i, s:i, s:i}", "job", "a", "size", 100, "epoch", 1, "max_np", 100);
    json_t *list = json_array();
    (void)state;
    for (int i = 0; i < 100; i++)
        json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:i}", "rank", i, "host",
                                              i % 2 ? "odd" : "even", "state",
                                              i % 10 == 3 ? "running" : "active", "pid", i + 1));
    json_object_set_new(j, "members", list);
    assert_int_equal(status_read(j, &s, NULL), 0);
    auto_free char *text = screen(&s, false);
    assert_non_null(strstr(text, "HOST  RANKS  STATES\n"
                                 "even     50  50 active\n"
                                 "odd      50  40 active, 10 running\n"));
    status_fini(&s);
}

static void test_hostile(void **state)
{
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"job\": 5, \"ranks\": []}",
        "{\"job\": \"a\"}",
        "{\"job\": \"a\", \"ranks\": 5}",
    };
    struct status s;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err err = {0};
        assert_int_equal(read_text(bad[i], &s, &err), -EINVAL);
        assert_true(err.msg[0]);
    }
    /* Control characters are replaced; numbers that are out of range are dropped. */
    assert_int_equal(
        read_text("{\"job\": \"a\", \"state\": \"x\\u001b[2J\\ny\", \"size\": 1e300, \"np\": -5e9,"
                  "\"epoch\": \"5\", \"throughput\": 5, \"last_change\": [], \"members\": [5, {},"
                  "{\"rank\": 99999999999, \"host\": 7, \"pid\": -4, \"idle_ms\": -7}]}",
                  &s, NULL),
        0);
    assert_int_equal(s.size, 0);
    assert_int_equal(s.np, 0);
    assert_int_equal(s.n, 3);
    assert_int_equal(s.members[2].rank, -1);
    auto_free char *text = screen(&s, true);
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "t-1: x?[2J?y, "));
    status_fini(&s);
}

static void test_duration(void **state)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {-5, "0 ms"},
        {0, "0 ms"},
        {999, "999 ms"},
        {1000, "1 s"},
        {119999, "119 s"},
        {120000, "2 min"},
        {7199999, "119 min"},
        {7200000, "2 h 0 min"},
        {172799999, "47 h 59 min"},
        {172800000, "2 d 0 h"},
    };
    char text[48];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(status_duration(cases[i].ms, text, sizeof(text)), cases[i].text);
}

static void test_table(void **state)
{
    struct table t;
    char *text = NULL;
    size_t len;
    (void)state;
    FILE *f = open_memstream(&text, &len);
    table_init(&t, "A|>NUMBER|LAST");
    table_add(&t, "%s", "wide cell");
    table_add(&t, "%d", 1234567);
    table_add(&t, "%s", "z");
    assert_int_equal(table_print(&t, f), 0);
    t.failed = true;
    assert_int_equal(table_print(&t, f), -ENOMEM);
    fclose(f);
    assert_string_equal(text, "A           NUMBER  LAST\n"
                              "wide cell  1234567  z\n");
    free(text);
    table_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),       cmocka_unit_test(test_least),
        cmocka_unit_test(test_places),      cmocka_unit_test(test_many),
        cmocka_unit_test(test_hostile),     cmocka_unit_test(test_duration),
        cmocka_unit_test(test_table),       cmocka_unit_test(test_sets),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_communicators),
        cmocka_unit_test(test_broken_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
