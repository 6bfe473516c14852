/* SPDX-License-Identifier: Apache-2.0
 *
 * test_match_line: what the beginning of a line contains: times of all forms and their order,
 * ranks, levels; how a line is printed; and the automaton compared with a plain search.
 */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diagnostics/match_line.h"
#include "diagnostics/match_scan.h"
#include "diagnostics/match_time.h"

/* ---- times ---------------------------------------------------------------------------------- */

static void reads(const char *text, size_t taken, const char *shown)
{
    struct match_time t = {0};
    char dst[64];
    size_t n = match_time_read(text, &t);
    if (n != taken)
        fail_msg("%s: took %zu, not %zu", text, n, taken);
    assert_string_equal(match_time_text(t, dst, sizeof(dst)), shown);
}

static void test_times(void **state)
{
    reads("2024-05-01T10:00:03.123Z x", 24, "2024-05-01T10:00:03.123Z");
    reads("2024-05-01 10:00:03,123 x", 23, "2024-05-01T10:00:03.123Z");
    reads("2024-05-01T12:00:03+02:00 x", 25, "2024-05-01T10:00:03.000Z");
    reads("2024-05-01T05:30:03.5-0430 x", 26, "2024-05-01T10:00:03.500Z");
    reads("[2024-05-01 10:00:03] x", 21, "2024-05-01T10:00:03.000Z");
    reads("2024/05/01 10:00:03 x", 19, "2024-05-01T10:00:03.000Z");
    reads("May  1 10:00:03 host x", 15, "05-01 10:00:03.000");
    reads("Wed May  1 10:00:03 2024 x", 24, "2024-05-01T10:00:03.000Z");
    reads("[Wed May  1 10:00:03 2024] x", 26, "2024-05-01T10:00:03.000Z");
    reads("[  123.456789] x", 14, "123.456 s after boot");
    reads("[1714557603.123456] x", 19, "2024-05-01T10:00:03.123Z");
    reads("6,1,123456789,-;x", 16, "123.456 s after boot");
    reads("E0501 10:00:03.1 x", 16, "05-01 10:00:03.100");
    reads("E501 10:00:03.123456789 x", 23, "05-01 10:00:03.123");
    reads("I1231 23:59:60 x", 14, "01-01 00:00:00.000");
}

static void test_no_times(void **state)
{
    static const char *const none[] = {
        "",
        "x",
        "2024-05-01",
        "2024-13-01 10:00:03",
        "12:00:03 x",
        "[3]<stderr>",
        "2024-05-01 25:00:03",
        "[99999999999999999999.000000] x",
        "Mayday",
        "[1.2] x",
        "E05 10:00:03",
        "1,2,3",
        "[",
        "2024-05-32 10:00:03",
    };
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
        reads(none[i], 0, "");
}

static struct match_time at(const char *text)
{
    struct match_time t = {0};
    assert_true(match_time_read(text, &t) > 0);
    return t;
}

static void test_order(void **state)
{
    struct match_time iso = at("2024-05-01T10:00:03Z"), syslog = at("May  1 10:00:04"),
                      glog = at("E0501 10:00:02.0"), kernel = at("[  1.000000]"),
                      later = at("[  2.000000]"), none = {0};
    assert_true(match_time_comparable(iso, syslog));
    assert_true(match_time_compare(iso, syslog) < 0);
    assert_true(match_time_compare(iso, glog) > 0);
    assert_true(match_time_compare(syslog, glog) > 0);
    assert_int_equal(match_time_compare(iso, iso), 0);
    assert_true(match_time_compare(kernel, later) < 0);
    assert_false(match_time_comparable(iso, kernel));
    assert_false(match_time_comparable(iso, none));
    assert_false(match_time_comparable(none, none));
}

/* ---- what a line begins with ---------------------------------------------------------------- */

static void tells(const char *line, int rank, bool info, const char *text)
{
    struct match_meta meta;
    match_line_meta(line, &meta);
    assert_int_equal(meta.rank, rank);
    assert_string_equal(line + meta.text, text);
    if (meta.info != info)
        fail_msg("%s: info %d", line, meta.info);
}

static void test_meta(void **state)
{
    tells("plain", -1, false, "plain");
    tells("", -1, false, "");
    tells("[3]<stderr>:plain", 3, false, "plain");
    tells("[1,3]<stdout>:INFO plain", 3, true, "INFO plain");
    tells("[job@1,12]<stderr>: plain", 12, false, "plain");
    tells("2024-05-01T10:00:03Z stderr F [rank3]: plain", 3, false, "plain");
    tells("Wed May  1 10:00:03 2024[2]<stderr>:plain", 2, false, "plain");
    tells("[3]<stderr>:hvd: info: plain", 3, true, "hvd: info: plain");
    tells("hvd-agent: warn: plain", -1, false, "hvd-agent: warn: plain");
    tells("[default3]:plain", -1, false, "plain");
    tells(" 3: plain", 3, false, "plain");
    tells("May  1 10:00:03 node1 kernel: plain", -1, false, "plain");
    tells("2024-05-01 10:00:03,123 - train - INFO - plain", -1, true, "- train - INFO - plain");
    tells("2024-05-01 10:00:03 ERROR about INFO", -1, false, "ERROR about INFO");
    tells("I0501 10:00:03.1 9 x.cc:1] plain", -1, true, "9 x.cc:1] plain");
    tells("E0501 10:00:03.1 9 x.cc:1] plain", -1, false, "9 x.cc:1] plain");
    tells("I tensorflow/core/x.cc:3] plain", -1, true, "I tensorflow/core/x.cc:3] plain");
    tells("node1:1:2 [0] NCCL INFO plain", -1, true, "node1:1:2 [0] NCCL INFO plain");
    tells("node1:1:2 [0] NCCL WARN plain", -1, false, "node1:1:2 [0] NCCL WARN plain");
    tells("[pod/worker-3/trainer] [3]<stderr>:plain", 3, false, "plain");
    tells("(RayTrainWorker pid=4711, ip=10.0.0.3) 2024-05-01 10:00:03 INFO x", -1, true, "INFO x");
    tells("worker-3  | plain", -1, false, "plain");
    tells("(plain) | plain", -1, false, "(plain) | plain");
    tells("a b | plain", -1, false, "a b | plain");
    tells("[pod/worker plain", -1, false, "[pod/worker plain");
    tells("[rank99999999]: plain", -1, false, "[rank99999999]: plain");
}

static void test_name(void **state)
{
    assert_int_equal(match_line_rank_of_name("out/rank.3/stderr"), 3);
    assert_int_equal(match_line_rank_of_name("frank/rank-12.log"), 12);
    assert_int_equal(match_line_rank_of_name("rank"), -1);
    assert_int_equal(match_line_rank_of_name("log"), -1);
    assert_int_equal(match_line_rank_of_name("rank12345678901"), -1);
}

/* ---- how a line is printed ----------------------------------------------------------------- */

static void test_show(void **state)
{
    static const char raw[] = "\x1b[31mred\x1b[0m\ttab\x01\xffz";
    char dst[64], cut[8], clean[64];
    match_line_show((const uint8_t *)raw, sizeof(raw) - 1, 0, dst, sizeof(dst));
    assert_string_equal(dst, "red tab\\x01\xef\xbf\xbdz");
    match_line_show((const uint8_t *)"\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", 9, 0, cut,
                    sizeof(cut));
    assert_string_equal(cut, "\xe2\x82\xac\xe2\x82\xac");
    assert_int_equal(match_line_clean((const uint8_t *)raw, sizeof(raw) - 1, clean, sizeof(clean)),
                     10);
    assert_string_equal(clean, "red tab \xffz");
    char longer[4000], shown[400];
    memset(longer, '.', sizeof(longer));
    memcpy(longer, "begin", 5);
    memcpy(longer + 3000, "the place", 9);
    match_line_show((const uint8_t *)longer, sizeof(longer), 3000, shown, sizeof(shown));
    assert_int_equal(strncmp(shown, "begin", 5), 0);
    assert_non_null(strstr(shown, " ... "));
    assert_non_null(strstr(shown, "the place"));
    assert_true(strlen(shown) < sizeof(shown));
}

/* ---- the automaton -------------------------------------------------------------------------- */

static const struct scan_word words[] = {{"abc", 0}, {"bcd", 1}, {"c", 2},   {"abcab", 3},
                                         {"zz", 4},  {"zzz", 5}, {"a b", 65}};
#define WORDS (sizeof(words) / sizeof(words[0]))

static bool ends_here(const uint8_t *text, size_t end, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < n; i++) {
        if (end < n)
            return false;
        uint8_t c = text[end - n + i];
        c = c < 0x20 && c != '\n' && c != '\r' ? ' ' : (uint8_t)tolower(c);
        if (c != (uint8_t)word[i])
            return false;
    }
    return true;
}

static void by_hand(const uint8_t *text, size_t end, uint64_t *bits)
{
    bits[0] = bits[1] = 0;
    for (size_t i = 0; i < WORDS; i++)
        if (ends_here(text, end, words[i].text))
            bits[words[i].id / 64] |= 1ULL << (words[i].id % 64);
}

static void test_scan(void **state)
{
    static const char letters[] = "aAbBcCdzZ \t\n\x01x";
    struct scan *scan = NULL;
    struct err err = {0};
    uint8_t text[400];
    unsigned seed = 7;
    assert_int_equal(scan_create(words, WORDS, &scan, &err), 0);
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof(text); i++) {
            seed = seed * 1103515245u + 12345u;
            text[i] = (uint8_t)letters[(seed >> 16) % (sizeof(letters) - 1)];
        }
        uint32_t at_state = 0;
        const uint8_t *p = text, *stop = text + sizeof(text);
        for (size_t end = 1; end <= sizeof(text); end++) {
            uint64_t expected[2], got[2] = {0};
            by_hand(text, end, expected);
            if (!expected[0] && !expected[1])
                continue;
            p = scan_next(scan, &at_state, p, stop);
            assert_ptr_equal(p, text + end);
            scan_ids(scan, at_state, got);
            assert_memory_equal(got, expected, sizeof(got));
        }
        assert_null(scan_next(scan, &at_state, p, stop));
    }
    scan_destroy(scan);
}

static void test_scan_refuses(void **state)
{
    struct scan *scan = NULL;
    struct err err = {0};
    assert_int_equal(scan_create(&(struct scan_word){"", 0}, 1, &scan, &err), -EINVAL);
    char *huge = malloc(70000);
    assert_non_null(huge);
    memset(huge, 'x', 70000);
    huge[69999] = 0;
    assert_int_equal(scan_create(&(struct scan_word){huge, 0}, 1, &scan, &err), -EINVAL);
    free(huge);
    assert_int_equal(scan_create(NULL, 0, &scan, &err), 0);
    uint32_t at_state = 0;
    const uint8_t *text = (const uint8_t *)"abc";
    assert_null(scan_next(scan, &at_state, text, text + 3));
    scan_destroy(scan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times), cmocka_unit_test(test_no_times),
        cmocka_unit_test(test_order), cmocka_unit_test(test_meta),
        cmocka_unit_test(test_name),  cmocka_unit_test(test_show),
        cmocka_unit_test(test_scan),  cmocka_unit_test(test_scan_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
