/* SPDX-License-Identifier: Apache-2.0
 *
 * test_patterns: every built-in pattern finds its own examples, no other pattern does, and it does
 * not find its counter-examples. It says what is wrong, which command helps and where that is
 * documented. Also the reader of pattern files: valid and invalid files, with line and field in the
 * message.
 */
#include "tests/unit/diagnostics/match_run.h"

static struct patterns *patterns;

static int setup(void **state)
{
    struct err err = {0};
    if (patterns_create(&patterns, &err) == 0)
        return 0;
    fprintf(stderr, "%s\n", err_text(&err));
    return 1;
}

static int teardown(void **state)
{
    patterns_destroy(patterns);
    return 0;
}

/* "\n" in an example ends a line. */
static char *unescape(const char *text)
{
    char *copy = strdup(text), *to = copy;
    assert_non_null(copy);
    for (const char *p = text; *p; p++) {
        bool newline = p[0] == '\\' && p[1] == 'n';
        *to++ = newline ? '\n' : *p;
        p += newline;
    }
    *to = 0;
    return copy;
}

static bool is_the_finding(const struct match_result *r, const struct pattern *p)
{
    const char *first = r->n ? r->findings[0].pattern->id : "";
    switch (p->kind) {
    case PATTERN_CAUSE:
        return r->verdict == MATCH_FOUND && strcmp(first, p->id) == 0;
    case PATTERN_EFFECT:
        return r->verdict == MATCH_EFFECTS && strcmp(first, p->id) == 0;
    case PATTERN_FAILURE:
        return r->verdict == MATCH_UNEXPLAINED && strcmp(first, p->id) == 0;
    case PATTERN_INFO:
        return r->verdict == MATCH_UNEXPLAINED && find_in(r->notes, r->nnotes, p->id);
    default:
        return r->verdict == MATCH_NOTHING && r->n == 0;
    }
}

static int check_example(const struct pattern *p, const char *example)
{
    char *text = unescape(example);
    struct log_text log = {"log", text};
    bool failed = p->kind == PATTERN_INFO || p->conditions & PATTERN_IF_FAILED;
    struct match *m;
    struct match_result *r = run_logs(patterns, &log, 1, failed, &m);
    int bad = !is_the_finding(r, p);
    char verdict[1024];
    if (bad)
        print_message("%s: its example %s\n  gives the verdict: %s\n", p->id, example,
                      match_verdict_text(r, verdict, sizeof(verdict)));
    done_logs(m, r);
    free(text);
    return bad;
}

static int check_negative(const struct pattern *p, const char *example)
{
    char *text = unescape(example);
    struct log_text log = {"log", text};
    struct match *m;
    struct match_result *r = run_logs(patterns, &log, 1, true, &m);
    int bad = find_any(r, p->id) != NULL || pattern_matches((struct pattern *)p, text, NULL);
    if (bad)
        print_message("%s: matches its counter-example: %s\n", p->id, example);
    done_logs(m, r);
    free(text);
    return bad;
}

static void test_examples(void **state)
{
    int bad = 0;
    for (size_t i = 0; i < patterns->n; i++) {
        const struct pattern *p = &patterns->v[i];
        for (int k = 0; k < p->nexamples; k++)
            bad += check_example(p, p->examples[k]);
        for (int k = 0; k < p->nnegatives; k++)
            bad += check_negative(p, p->negatives[k]);
    }
    assert_int_equal(bad, 0);
}

static int complain(const struct pattern *p, bool good, const char *what)
{
    if (!good)
        print_message("%s: %s\n", p->id, what);
    return !good;
}

static int check_texts(const struct pattern *p)
{
    int bad = 0;
    bool all = p->fix[FIX_DOCKER] && p->fix[FIX_K8S] && p->fix[FIX_HOST];
    bad += complain(p, strncmp(p->code, "HVDL", 4) == 0 && strlen(p->code) == 7, "code");
    bad += complain(p, p->nexamples > 0, "no eg");
    bad += complain(p, p->nnegatives > 0, "no no");
    bad += complain(p, strlen(p->say) < MATCH_SAY - 100, "say is long");
    if (p->kind == PATTERN_IGNORE)
        return bad;
    bad += complain(p, all, "no do, docker, k8s or host");
    bad += complain(p, p->kind == PATTERN_FAILURE || p->why, "no why");
    bad += complain(p, p->refs[0], "no ref");
    bad += complain(p, p->kind != PATTERN_CAUSE || p->strength < 2 || p->action != ACTION_NONE,
                    "no act");
    for (int k = 0; k < PATTERN_REFS && p->refs[k]; k++)
        bad += complain(p, strncmp(p->refs[k], "https://", 8) == 0, "ref is no https URL");
    return bad;
}

/* Each id in "of:" is a pattern, and that pattern does not name this one in turn. */
static int check_of(const struct pattern *p)
{
    char list[512], *save = NULL;
    int bad = 0;
    snprintf(list, sizeof(list), "%s", p->of ? p->of : "");
    for (char *id = strtok_r(list, " ", &save); id; id = strtok_r(NULL, " ", &save)) {
        const struct pattern *other = patterns_find(patterns, id);
        bad += complain(p, other, id);
        bad += complain(p, !other || !pattern_listed(other->of, p->id), "two name each other");
    }
    return bad;
}

static void test_texts(void **state)
{
    int bad = 0;
    for (size_t i = 0; i < patterns->n; i++)
        bad += check_texts(&patterns->v[i]) + check_of(&patterns->v[i]);
    assert_int_equal(bad, 0);
    assert_true(patterns->n >= 130);
}

/* An expression is compiled at its first use. An expression that cannot be compiled would never
 * match. */
static void test_every_expression_compiles(void **state)
{
    for (size_t i = 0; i < patterns->n; i++) {
        struct pattern *p = &patterns->v[i];
        pattern_matches(p, "", NULL);
        for (int k = 0; k < p->nregex; k++) {
            if (!p->regex[k].compiled)
                print_message("%s: %s does not compile\n", p->id, p->regex[k].text);
            assert_non_null(p->regex[k].compiled);
        }
        regex_t re;
        if (!p->except.text)
            continue;
        assert_int_equal(regcomp(&re, p->except.text, REG_EXTENDED), 0);
        regfree(&re);
    }
}

/* ---- the reader ----------------------------------------------------------------------------- */

static void refuses(const char *text, const char *message)
{
    struct patterns *p = NULL;
    struct err err = {0};
    assert_int_equal(patterns_parse(text, strlen(text), "t.txt", &p, &err), -EINVAL);
    if (!strstr(err.msg, message))
        fail_msg("the error \"%s\" lacks \"%s\"", err.msg, message);
    assert_null(p);
}

#define HEAD "[a] HVDL901 cause 2\nsay: x\n"

static void test_refused(void **state)
{
    refuses("re: abcd\n", "t.txt:1: expected [id]");
    refuses("[a HVDL901 cause 2\n", "t.txt:1: expected [id]");
    refuses("[a] HVDL901 cause\n", "t.txt:1: expected [id] code kind strength");
    refuses("[a] HVDL901 reason 2\n", "no kind: reason");
    refuses("[a] HVDL901 cause 4\n", "strength is 1, 2 or 3, not: 4");
    refuses("[a] HVDL901 cause 2 sometimes\n", "no condition: sometimes");
    refuses(HEAD "re: abcd\n[a] HVDL902 cause 2\n", "t.txt:4: id or code is used twice");
    refuses(HEAD "re: a.b.c\n", "t.txt:3: no literal of 4 bytes");
    refuses(HEAD "re: abcd|efgh\n", "no literal of 4 bytes");
    refuses(HEAD "re: abcd\nwhat: x\n", "t.txt:4: no field: what");
    refuses(HEAD "re: abcd\nsay: y\n", "t.txt:4: given twice");
    refuses(HEAD "re: abcd\nwhy:\n", "t.txt:4: nothing after");
    refuses(HEAD "re: abcd\nact: pray\n", "t.txt:4: no action: pray");
    refuses(HEAD, "a: no \"re\" or no \"say\"");
    refuses("[a] HVDL901 cause 2\nre: abcd\n", "a: no \"re\" or no \"say\"");
}

static void test_read(void **state)
{
    static const char text[] = "# remark\n\n  [a] HVDL901 effect 1 failed follow\r\n"
                               "re: ab+cdef (x|y)\nre:\tSecond one\nsay: it is $1\nhost: h\ndo: d\n"
                               "act: reboot\n";
    struct patterns *p = NULL;
    struct err err = {0};
    assert_int_equal(patterns_parse(text, strlen(text), "t.txt", &p, &err), 0);
    assert_int_equal(p->n, 1);
    struct pattern *a = &p->v[0];
    assert_int_equal(a->kind, PATTERN_EFFECT);
    assert_int_equal(a->strength, 1);
    assert_int_equal(a->conditions, PATTERN_IF_FAILED | PATTERN_FOLLOW);
    assert_int_equal(a->nregex, 2);
    assert_string_equal(a->regex[0].literal, "cdef ");
    assert_string_equal(a->fix[FIX_HOST], "h");
    assert_string_equal(a->fix[FIX_K8S], "d");
    assert_int_equal(a->action, ACTION_REBOOT);
    assert_ptr_equal(patterns_find(p, "HVDL901"), a);
    assert_null(patterns_find(p, "b"));
    assert_true(pattern_matches(a, "abbcdef y", NULL));
    assert_false(pattern_matches(a, "acdef y", NULL));
    patterns_destroy(p);
}

static void test_empty(void **state)
{
    struct patterns *p = NULL;
    struct log_text log = {"log", "CUDA out of memory\n"};
    struct match *m;
    assert_int_equal(patterns_parse("", 0, "t.txt", &p, NULL), 0);
    struct match_result *r = run_logs(p, &log, 1, false, &m);
    assert_int_equal(r->verdict, MATCH_NOTHING);
    done_logs(m, r);
    patterns_destroy(p);
}

static void literal_is(const char *regex, const char *expected)
{
    char dst[PATTERN_LITERAL + 1];
    patterns_literal(regex, dst, sizeof(dst));
    assert_string_equal(dst, expected);
}

static void test_literal(void **state)
{
    literal_is("CUDA out of memory", "cuda out of memory");
    literal_is("abc?defg", "defg");
    literal_is("abcde*fg", "abcd");
    literal_is("abcd+ef", "abcd");
    literal_is("abc(defghij)kl", "abc");
    literal_is("ab[cde]fgh", "fgh");
    literal_is("a[]]bcd", "bcd");
    literal_is("a[[:alpha:]]bcd", "bcd");
    literal_is("x\\.so\\(1\\)", "x.so(1)");
    literal_is("ab{2}cd", "cd");
    literal_is("abcd|efgh", "");
    literal_is("a(b|c)d", "a");
    literal_is("a long literal that has to be cut", "a long literal that ");
    literal_is("", "");
}

static void test_listed(void **state)
{
    assert_true(pattern_listed("xid-6 xid-63", "xid-63"));
    assert_true(pattern_listed("xid-63,xid-6", "xid-6"));
    assert_false(pattern_listed("xid-63", "xid-6"));
    assert_false(pattern_listed("axid-6", "xid-6"));
    assert_false(pattern_listed(NULL, "xid-6"));
    assert_false(pattern_listed("", "xid-6"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_every_expression_compiles),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_literal),
        cmocka_unit_test(test_listed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
