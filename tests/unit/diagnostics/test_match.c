/* SPDX-License-Identifier: Apache-2.0
 *
 * test_match: streams of bytes: pieces of any size, lines of a megabyte, NULs, bytes that are not
 * UTF-8, carriage returns, no newline at the end; memory that does not grow; the result as text and
 * JSON.
 */
#include <unistd.h>

#include "core/json/json.h"
#include "diagnostics/match_json.h"
#include "tests/unit/diagnostics/match_run.h"

#define OOM "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."

static struct patterns *patterns;
static struct match *m;
static struct match_result *r;

static int setup(void **state)
{
    return patterns_create(&patterns, NULL) == 0 ? 0 : 1;
}

static int teardown(void **state)
{
    patterns_destroy(patterns);
    return 0;
}

static void feed(const void *bytes, size_t len, size_t piece)
{
    struct match_opts opts = {.patterns = patterns};
    struct err err = {0};
    assert_int_equal(match_create(&opts, &m, &err), 0);
    struct match_source *s = match_open_source(m, "log", -1);
    assert_non_null(s);
    for (size_t at = 0; at < len; at += piece) {
        /* A copy of exactly this size, so that a sanitizer sees a read past the end. */
        size_t n = len - at < piece ? len - at : piece;
        void *copy = malloc(n);
        assert_non_null(copy);
        memcpy(copy, (const char *)bytes + at, n);
        match_feed(s, copy, n);
        free(copy);
    }
    match_close_source(s);
    assert_int_equal(match_finish(m, &r, &err), 0);
}

static void done(void)
{
    done_logs(m, r);
}

static void expect(const char *id, uint64_t line, uint64_t offset, uint64_t count)
{
    assert_int_equal(r->n, 1);
    assert_string_equal(r->findings[0].pattern->id, id);
    assert_int_equal(r->findings[0].line, line);
    assert_int_equal(r->findings[0].offset, offset);
    assert_int_equal(r->findings[0].count, count);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void test_pieces(void **state)
{
    static const char text[] = "step 1\nstep 2\r\n\n" OOM "\nstep 3\n" OOM "\r\nstep 4";
    static const size_t pieces[] = {1, 2, 3, 5, 7, 16, 17, 64, 100, 1000};
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        feed(text, sizeof(text) - 1, pieces[i]);
        expect("cuda-oom", 4, 16, 2);
        assert_string_equal(r->findings[0].text, OOM);
        assert_int_equal(r->lines, 7);
        assert_int_equal(r->bytes, sizeof(text) - 1);
        done();
    }
}

static void test_no_newline(void **state)
{
    feed(OOM, strlen(OOM), 10);
    expect("cuda-oom", 1, 0, 1);
    done();
    feed("", 0, 1);
    assert_int_equal(r->verdict, MATCH_NOTHING);
    assert_int_equal(r->lines, 0);
    done();
}

/* A line without its newline is not matched yet. */
static void test_not_closed(void **state)
{
    struct match_opts opts = {.patterns = patterns};
    assert_int_equal(match_create(&opts, &m, NULL), 0);
    struct match_source *s = match_open_source(m, "log", -1);
    match_feed(s, OOM, strlen(OOM));
    assert_int_equal(match_finish(m, &r, NULL), 0);
    assert_int_equal(r->verdict, MATCH_NOTHING);
    match_result_destroy(r);
    match_feed(s, "\n", 1);
    assert_int_equal(match_finish(m, &r, NULL), 0);
    expect("cuda-oom", 1, 0, 1);
    done();
}

static void test_foreign_bytes(void **state)
{
    static const char text[] =
        "\xff\xfe\x80\n\0\0\0\n\x1b[31mCUDA out\x1b[0m of\0memory \xc3\x28 \x01 "
        "\xe2\x82\xac\x1b[0m\n";
    feed(text, sizeof(text) - 1, sizeof(text));
    expect("cuda-oom", 3, 8, 1);
    done();
    feed(text, sizeof(text) - 1, 4);
    expect("cuda-oom", 3, 8, 1);
    assert_string_equal(r->findings[0].text,
                        "CUDA out of\\x00memory \xef\xbf\xbd( \\x01 \xe2\x82\xac");
    json_t *j = match_json(r);
    assert_non_null(j);
    json_decref(j);
    done();
}

/* Progress bars overwrite their line. */
static void test_carriage_returns(void **state)
{
    static const char text[] = " 10%|#  |\r 20%|## |\r" OOM "\r 30%|###|\n";
    feed(text, sizeof(text) - 1, 9);
    expect("cuda-oom", 1, 0, 1);
    done();
}

/* A line of a megabyte with the words in its middle, at its end, and across each border of the
 * carry and the window. */
static void test_long_line(void **state)
{
    static const size_t places[] = {0,    4000, 4090, 4096,  7160,   7168,   8100,
                                    8185, 8192, 9000, 12288, 500000, 1048000};
    size_t size = 1 << 20;
    char *text = malloc(size);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        memset(text, 'x', size);
        memcpy(text + places[i], " CUDA out of memory ", 20);
        for (size_t piece = 1000; piece <= size; piece *= 1048) {
            feed(text, size, piece);
            expect("cuda-oom", 1, 0, 1);
            assert_non_null(strstr(r->findings[0].text, "CUDA out of memory"));
            assert_int_equal(r->lines, 1);
            done();
        }
    }
    free(text);
}

static size_t resident(void)
{
    unsigned long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &all, &pages), 2);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

#if defined(__SANITIZE_ADDRESS__)
#define MEGABYTES 10 /* with sanitizers, which are ten times slower */
#else
#define MEGABYTES 200
#endif

/* 200 MB in which every 50th line is found. */
static void test_memory(void **state)
{
    size_t n = 0, size = 1 << 20;
    char *block = malloc(size);
    assert_non_null(block);
    for (unsigned i = 0; n + 200 < size; i++)
        n += (size_t)snprintf(block + n, size - n, "[%u]<stderr>:step %u loss 0.%u%s\n", i % 64, i,
                              i * 7, i % 50 ? "" : " gloo/x Connection closed by peer");
    struct match_opts opts = {.patterns = patterns};
    assert_int_equal(match_create(&opts, &m, NULL), 0);
    struct match_source *s = match_open_source(m, "log", -1);
    match_feed(s, block, n);
    size_t before = resident();
    for (int i = 0; i < MEGABYTES; i++)
        match_feed(s, block, n);
    assert_true(resident() < before + (8 << 20));
    match_close_source(s);
    assert_int_equal(match_finish(m, &r, NULL), 0);
    assert_true(r->bytes > MEGABYTES * n);
    const struct match_finding *f = find_any(r, "gloo-lost");
    assert_non_null(f);
    assert_int_equal(f->nranks, MATCH_RANKS);
    assert_true(f->more_ranks);
    done();
    free(block);
}

/* ---- sources -------------------------------------------------------------------------------- */

static void test_rank_of_a_source(void **state)
{
    static const struct {
        const char *name, *text;
        int given, rank;
    } cases[] = {
        {"out/rank.3/stderr", OOM, -1, 3},
        {"train-rank_03.txt", OOM, -1, 3},
        {"rank12.log", OOM, 7, 7},
        {"log", OOM, -1, -1},
        {"rank.3", "[5]<stderr>:" OOM, -1, 5},
        {"log", "[rank6]:[E501 10:00:03.123456789 x.cpp:6] " OOM, -1, 6},
        {"log", " 4: " OOM, -1, 4},
        {"log", "[1,9]<stderr>:" OOM, -1, 9},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct match_opts opts = {.patterns = patterns};
        assert_int_equal(match_create(&opts, &m, NULL), 0);
        struct match_source *s = match_open_source(m, cases[i].name, cases[i].given);
        match_feed(s, cases[i].text, strlen(cases[i].text));
        match_close_source(s);
        assert_int_equal(match_finish(m, &r, NULL), 0);
        assert_int_equal(r->findings[0].rank, cases[i].rank);
        done();
    }
}

/* ---- output --------------------------------------------------------------------------------- */

static const struct log_text two[] = {
    {"rank.0/stderr", "2024-05-01T10:00:09Z ConnectionResetError: [Errno 104] Connection reset\n"},
    {"rank.3/stderr",
     "step 1\n2024-05-01T10:00:03.500Z OSError: [Errno 28] No space left on device\n"},
};

static void test_print(void **state)
{
    char *text = NULL, verdict[1024];
    size_t len = 0;
    r = run_logs(patterns, two, 2, false, &m);
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    match_print(r, f);
    fclose(f);
    assert_non_null(strstr(text, "CAUSE HVDL450 disk-full: a disk is full"));
    assert_non_null(strstr(text, "rank 3, rank.3/stderr:2, 2024-05-01T10:00:03.500Z"));
    assert_non_null(strstr(text, "  | 2024-05-01T10:00:03.500Z OSError"));
    assert_non_null(strstr(text, "\n  docker"));
    assert_non_null(strstr(text, "\n  see"));
    assert_non_null(strstr(text, "connection-reset: "));
    match_verdict_text(r, verdict, sizeof(verdict));
    assert_non_null(strstr(verdict, "disk-full: a disk is full"));
    assert_non_null(strstr(verdict, "(rank 3, rank.3/stderr:2, "));
    strcat(verdict, "\n");
    assert_string_equal(text + len - strlen(verdict), verdict);
    free(text);
    done();
}

static void test_verdict_is_cut(void **state)
{
    char small[16];
    r = run_logs(patterns, two, 2, false, &m);
    assert_string_equal(match_verdict_text(r, small, sizeof(small)), "disk-full: a di");
    done();
}

static void test_json(void **state)
{
    r = run_logs(patterns, two, 2, false, &m);
    json_t *j = match_json(r);
    assert_non_null(j);
    const char *schema, *verdict, *summary, *id, *code, *kind, *cause, *source, *time, *text,
        *docker, *action, *detail, *effect;
    int status, rank, line, sources, lines, count, first_rank, more;
    struct err err = {0};
    int rc = json_expect(
        j, "result", &err,
        "{s:s, s:s, s:i, s:s, s:i, s:i, s:I, s:[{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:s, s:s, "
        "s:i, s:[i], s:b, s:s, s:{s:s}, s:s, s:[s], s:s}], s:[{s:s}], s:[]}",
        "schema", &schema, "verdict", &verdict, "exit", &status, "summary", &summary, "sources",
        &sources, "lines", &lines, "bytes", &(json_int_t){0}, "findings", "id", &id, "code", &code,
        "kind", &kind, "cause", &cause, "source", &source, "rank", &rank, "line", &line, "offset",
        &(json_int_t){0}, "time", &time, "text", &text, "count", &count, "ranks", &first_rank,
        "more_ranks", &more, "why", &(const char *){NULL}, "fix", "docker", &docker, "action",
        &action, "refs", &(const char *){NULL}, "detail", &detail, "effects", "id", &effect,
        "notes");
    if (rc < 0)
        fail_msg("%s", err_text(&err));
    assert_string_equal(schema, "hvd-match/1");
    assert_string_equal(verdict, "found");
    assert_int_equal(status, 1);
    assert_int_equal(sources, 2);
    assert_int_equal(lines, 3);
    assert_string_equal(id, "disk-full");
    assert_string_equal(kind, "cause");
    assert_int_equal(rank, 3);
    assert_int_equal(first_rank, 3);
    assert_int_equal(line, 2);
    assert_string_equal(time, "2024-05-01T10:00:03.500Z");
    assert_string_equal(action, "free-space");
    assert_string_equal(effect, "connection-reset");
    assert_null(json_object_get(json_array_get(json_object_get(j, "effects"), 0), "fix"));
    json_decref(j);
    done();
}

static void test_json_nothing(void **state)
{
    struct log_text log = {"log", "fine\n"};
    r = run_logs(patterns, &log, 1, false, &m);
    json_t *j = match_json(r);
    assert_string_equal(json_string_value(json_object_get(j, "verdict")), "nothing");
    assert_int_equal(json_array_size(json_object_get(j, "findings")), 0);
    json_decref(j);
    done();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_no_newline),
        cmocka_unit_test(test_not_closed),
        cmocka_unit_test(test_foreign_bytes),
        cmocka_unit_test(test_carriage_returns),
        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_rank_of_a_source),
        cmocka_unit_test(test_print),
        cmocka_unit_test(test_verdict_is_cut),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
