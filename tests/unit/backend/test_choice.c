/* SPDX-License-Identifier: Apache-2.0
 *
 * Which back ends a job uses: HVD_BACKEND, what ranks report on the wire, and the choice as a
 * table.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/backend/choice.h"

static void parses(const char *text, const char *want)
{
    struct backend_wish w;
    struct err err = {0};
    char got[BACKEND_NAMES_MAX];
    assert_int_equal(backend_wish_parse(text, &w, &err), 0);
    backend_wish_text(&w, got, sizeof(got));
    assert_string_equal(got, want);
}

static void test_lists(void **state)
{
    parses(NULL, "auto");
    parses("auto", "auto");
    parses("Auto", "auto");
    parses("host", "host");
    parses("mpi", "mpi");
    parses("MPI,host", "mpi,host");
    parses("nccl, mpi ,host", "nccl,mpi,host");
}

static void refuses(const char *text, const char *words)
{
    struct backend_wish w = {.n = -7};
    struct err err = {0};
    assert_int_equal(backend_wish_parse(text, &w, &err), -EINVAL);
    assert_int_equal(w.n, -7);
    if (!strstr(err.msg, words))
        fail_msg("\"%s\" is not in: %s", words, err.msg);
    assert_non_null(strstr(err.msg, "HVD_BACKEND"));
}

static void test_bad_lists(void **state)
{
    char longer[BACKEND_TEXT_MAX + 1];
    refuses("mip", "did you mean mpi?");
    refuses("host,ncll", "did you mean nccl?");
    refuses("gloo", "want one of auto, host, mpi, nccl, staged");
    refuses(",", "want one of");
    refuses("auto,host", "no back end \"auto\"");
    refuses("mpi,mpi", "twice");
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    refuses(longer, "too long for a list");
}

static void test_wire(void **state)
{
    struct backend_said in = {.wish = {2, {1, 0}}}, out;
    struct buf buf = {0};
    struct err err = {0};
    strcpy(in.of[0].text, "no libmpi here");
    in.of[1].here = true;
    backend_said_put(&in, &buf);
    buf_put_u8(&buf, 77);
    size_t whole = buf.len - 1;
    for (size_t cut = 0; cut < whole; cut++) {
        struct buf part = {0};
        buf_put(&part, buf.data, cut);
        assert_int_equal(backend_said_take(&part, &out, &err), -EPROTO);
        assert_int_equal(part.len, cut);
        buf_fini(&part);
    }
    assert_int_equal(backend_said_take(&buf, &out, &err), 0);
    assert_int_equal(buf.len, 1); /* the bytes after the report are not consumed */
    assert_int_equal(buf.data[0], 77);
    assert_int_equal(out.wish.n, 2);
    assert_int_equal(out.wish.list[0], 1);
    assert_false(out.of[0].here);
    assert_string_equal(out.of[0].text, "no libmpi here");
    assert_true(out.of[1].here);
    buf_fini(&buf);
}

static void test_wire_longest(void **state)
{
    struct backend_said said = {.wish = {.n = BACKENDS}};
    struct buf buf = {0};
    (void)state;
    for (int i = 0; i < BACKENDS; i++)
        memset(said.of[i].text, 'x', sizeof(said.of[i].text) - 1);
    backend_said_put(&said, &buf);
    assert_in_range(buf.len, 1, BACKEND_SAID_BYTES_MAX);
    buf_fini(&buf);
}

static void test_wire_nonsense(void **state)
{
    static const uint8_t bad[][5] = {
        {BACKENDS + 1, 0, 0, 0, 0}, /* more than there are */
        {1, BACKENDS, 1, 0, 0},     /* no such back end */
        {1, 200, 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct backend_said out;
        struct buf buf = {0};
        struct err err = {0};
        buf_put(&buf, bad[i], sizeof(bad[i]));
        assert_int_equal(backend_said_take(&buf, &out, &err), -EPROTO);
        buf_fini(&buf);
    }
}

/* For two ranks: the back ends that each wants, and the MPI and NCCL that each has ("+4.1": version
 * 4.1; "-why": none, for this reason). Then the expected choice. */
static const struct {
    const char *wish[2];
    const char *mpi[2], *nccl[2];
    int rc;
    const char *use;   /* the chosen back end, if rc is 0 */
    const char *words; /* part of the error or of the note */
} table[] = {
    {{NULL, NULL}, {"", ""}, {"", ""}, 0, "auto", ""},
    {{"host", "host"}, {"", ""}, {"", ""}, 0, "auto", ""},
    {{"mpi", "mpi"}, {"+4.1", "+4.1"}, {"", ""}, 0, "mpi", ""},
    {{"mpi,host", "mpi,host"}, {"+4.1", "+4.1"}, {"", ""}, 0, "mpi", ""},
    {{"nccl,mpi", "nccl,mpi"}, {"+4.1", "+4.1"}, {"+2.27", "+2.27"}, 0, "nccl,mpi", ""},
    {{"nccl,mpi", "nccl,mpi"},
     {"+4.1", "+4.1"},
     {"+2.27", "-no GPU"},
     0,
     "mpi",
     "rank 1 cannot use it: no GPU; mpi instead"},
    {{"mpi,host", "mpi,host"}, {"-gone", "+4.1"}, {"", ""}, 0, "auto", "gone; host instead"},
    {{"mpi", "mpi"}, {"+4.1", "-gone"}, {"", ""}, -ENOENT, NULL, "rank 1 cannot use it: gone"},
    {{"mpi", "mpi"}, {"+4.1", "+5.0"}, {"", ""}, -ENOENT, NULL, "rank 0 has 4.1, rank 1 has 5.0"},
    {{"mpi", "host"}, {"+4.1", ""}, {"", ""}, -EINVAL, NULL, "mpi on rank 0 and host on rank 1"},
    {{"mpi", NULL}, {"+4.1", ""}, {"", ""}, -EINVAL, NULL, "mpi on rank 0 and auto on rank 1"},
    {{"mpi,host", "host,mpi"}, {"+4.1", "+4.1"}, {"", ""}, -EINVAL, NULL, "on rank 1"},
};

static void fill(struct backend_said *said, size_t row, int rank)
{
    const char *const has[] = {"+", table[row].mpi[rank], table[row].nccl[rank]};
    memset(said, 0, sizeof(*said));
    assert_int_equal(backend_wish_parse(table[row].wish[rank], &said->wish, NULL), 0);
    for (int i = 0; i < said->wish.n; i++) {
        const char *text = has[said->wish.list[i]];
        said->of[i].here = text[0] == '+';
        snprintf(said->of[i].text, sizeof(said->of[i].text), "%s", text + 1);
    }
}

static void test_choice(void **state)
{
    for (size_t row = 0; row < sizeof(table) / sizeof(table[0]); row++) {
        struct backend_said said[2];
        struct backend_choice c = {.note = ""};
        struct err err = {0};
        char use[BACKEND_NAMES_MAX];
        fill(&said[0], row, 0);
        fill(&said[1], row, 1);
        int rc = backend_choose(said, 2, &c, &err);
        if (rc != table[row].rc)
            fail_msg("row %zu: %d, not %d: %s", row, rc, table[row].rc, err_text(&err));
        const char *said_why = rc < 0 ? err.msg : c.note;
        if (!strstr(said_why, table[row].words))
            fail_msg("row %zu: \"%s\" is not in: %s", row, table[row].words, said_why);
        if (rc < 0)
            continue;
        backend_wish_text(&c.use, use, sizeof(use));
        assert_string_equal(use, table[row].use);
        assert_int_equal(c.note[0] != '\0', table[row].words[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists),         cmocka_unit_test(test_bad_lists),
        cmocka_unit_test(test_wire),          cmocka_unit_test(test_wire_longest),
        cmocka_unit_test(test_wire_nonsense), cmocka_unit_test(test_choice),
    };
    return cmocka_run_group_tests_name("backend/choice", tests, NULL, NULL);
}
