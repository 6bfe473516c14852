/* SPDX-License-Identifier: Apache-2.0
 *
 * test_redact: secrets are replaced and the rest stays: by the name of a variable, by value
 * anywhere in a text, in each escape of the doctor's formats, and by form. Text that only looks
 * like a secret stays.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "diagnostics/report/redact.h"

static const char environment[] = "HF_TOKEN=hunter2-hunter2\0"
                                  "MY_SECRET_KEY=a\"b\\c<d>&e\nf, g\0"
                                  "KEY_FILE=/etc/hvd/key.file.of.the.job\0"
                                  "TOKENIZERS_PARALLELISM=false\0"
                                  "MONKEY=short\0"
                                  "PUBLIC=not-a-secret-at-all\0"
                                  "DB_PASSWORD=correct horse \0"
                                  "EMPTY_TOKEN=\0"
                                  "NOEQUALS";

static struct redact *r;

static int setup(void **state)
{
    struct machine m = {.environ_text = (char *)environment, .environ_len = sizeof(environment)};
    return redact_create(&r, &m);
}

static int teardown(void **state)
{
    redact_destroy(r);
    return 0;
}

static void expect(const char *text, const char *want)
{
    struct buf out = {0};
    redact_text(r, text, strlen(text), &out);
    buf_put_u8(&out, 0);
    assert_string_equal((char *)out.data, want);
    buf_fini(&out);
}

static void test_values(void **state)
{
    expect("token hunter2-hunter2.", "token <redacted>.");
    expect("hunter2-hunter2hunter2-hunter2", "<redacted><redacted>");
    expect("xhunter2-hunter2", "x<redacted>");
    expect("a\"b\\c<d>&e\nf, g", "<redacted>");
    expect("{\"v\": \"a\\\"b\\\\c<d>&e\\nf, g\"}", "{\"v\": \"<redacted>\"}");
    expect("<m>a&quot;b\\c&lt;d&gt;&amp;e\nf, g</m>", "<m><redacted></m>");
    expect("value a\"b\\\\c<d>&e\\nf, g\n", "value <redacted>\n");
    expect("the correct horse", "the <redacted>");
    expect("xhunter2-hunter2-key=abc", "x<redacted>-key=<redacted>"); /* a secret inside a name */
    expect("cut off: hunter2-hunt", "cut off: <redacted>");
    expect("hunter2 alone is a word", "hunter2 alone is a word");
    expect("not-a-secret-at-all", "not-a-secret-at-all");
    expect("/etc/hvd/key.file.of.the.job", "/etc/hvd/key.file.of.the.job");
    expect("short false", "short false");
}

static void test_names(void **state)
{
    expect("MY_TOKEN=abcdefg rest", "MY_TOKEN=<redacted> rest");
    expect("api_key=abc&user=x", "api_key=<redacted>&user=x");
    expect("export AWS_SECRET_ACCESS_KEY='abc/def'", "export AWS_SECRET_ACCESS_KEY='<redacted>'");
    expect("{\"password\": \"abc\", \"user\": \"x\"}",
           "{\"password\": \"<redacted>\", \"user\": \"x\"}");
    expect("{\"password\":\"abc\"}", "{\"password\":\"<redacted>\"}");
    expect("--token=abc --x", "--token=<redacted> --x");
    expect("\"a MY_KEY=abc\\\" KEY=\\\"p\\\"\"",
           "\"a MY_KEY=<redacted>\\\" KEY=\\\"<redacted>\\\"\"");
    expect("<m a=\"KEY=&quot;abc&quot; x\">", "<m a=\"KEY=&quot;<redacted>&quot; x\">");
    expect("\"KEY=abc\\\\\"", "\"KEY=<redacted>\""); /* a backslash at the end of a string */
    expect("{\"a\":\"KEY=\"}", "{\"a\":\"KEY=\"}");
    expect("_KEY=12345678", "_KEY=<redacted>");
    expect("KEY_FILE=/a/b SSH_KEY_PATH=/c", "KEY_FILE=/a/b SSH_KEY_PATH=/c");
    expect("TOKENIZERS_PARALLELISM=true", "TOKENIZERS_PARALLELISM=true");
    expect("KEEP_KEYS=12", "KEEP_KEYS=12");
    expect("MAX_TOKENS=2048", "MAX_TOKENS=2048");
    expect("TOKEN=", "TOKEN=");
    expect("TOKEN= x", "TOKEN= x");
    expect("HVD_RANK=3", "HVD_RANK=3");
    expect("MY_TOKEN=<redacted>", "MY_TOKEN=<redacted>");
    assert_true(redact_is_secret_name("db_passwd", 9));
    assert_true(redact_is_secret_name("Credentials", 11));
    assert_false(redact_is_secret_name("HVD_KEY_FILE", 12));
    assert_true(redact_is_secret_name("DB_PASS", 7));
    assert_true(redact_is_secret_name("MYSQL_PWD", 9));
    assert_false(redact_is_secret_name("PWD", 3));
    assert_false(redact_is_secret_name("OLDPWD", 6));
    assert_false(redact_is_secret_name("PATH", 4));
}

static void test_forms(void **state)
{
    expect("https://ann:s3cret@host/x", "https://ann:<redacted>@host/x");
    expect("postgres://u:p@ss@h", "postgres://u:<redacted>@h");
    expect("redis://:pa/ss@h/0", "redis://:<redacted>@h/0");
    expect("https://u:p@h/x?mail=y@z", "https://u:<redacted>@h/x?mail=y@z");
    expect("https://u:p:q@h", "https://u:<redacted>@h");
    expect("https://host:/a@b", "https://host:/a@b");
    expect("https://host:80/a@b", "https://host:80/a@b");
    expect("https://ann@host", "https://ann@host");
    expect("AKIAIOSFODNN7EXAMPLE.", "<redacted>.");
    expect("AKIAIOSFODNN7EXAMPLE7",
           "AKIAIOSFODNN7EXAMPLE7"); /* one character too long for this form */
    expect("Authorization: Bearer abc123def456", "Authorization: Bearer <redacted>");
    expect("a bearer credential is needed", "a bearer credential is needed");
    expect("ghp_0123456789abcdefghijABCDEFGHIJ", "<redacted>");
    expect("hf_0123456789abcdefghij", "<redacted>");
    expect("hf_short", "hf_short");
    expect("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIi", "<redacted>");
    expect("keyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9xx", "keyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9xx");
}

/* A quoted value ends at the closing quote of the same kind. */
static void test_quotes(void **state)
{
    expect("{\"password\": \"a b, c\", \"user\": 1}",
           "{\"password\": \"<redacted>\", \"user\": 1}");
    expect("{'password' : 'a b'}", "{'password' : '<redacted>'}");
    expect("export KEY=\"a b\" x", "export KEY=\"<redacted>\" x");
    expect("KEY=\"a\\\"b\\\\\" x", "KEY=\"<redacted>\" x");
    expect("KEY='a b' KEY='c, d'", "KEY='<redacted>' KEY='<redacted>'");
    expect("KEY=&quot;a b&quot; x", "KEY=&quot;<redacted>&quot; x");
    expect("KEY='abc def\n'", "KEY='<redacted> def\n'"); /* the quote is not closed in its line */
    expect("{\"a\":\"KEY=\",\"b\":\"x\"}", "{\"a\":\"KEY=\",\"b\":\"x\"}");
    /* JSON in JSON, and once more in JSON */
    expect("{\"log\":\"{\\\"my_key\\\": \\\"a b\\\"}\"}",
           "{\"log\":\"{\\\"my_key\\\": \\\"<redacted>\\\"}\"}");
    expect("\\\\\\\"key\\\\\\\":\\\\\\\"a\\\\\\\\\\\\\\\"b\\\\\\\"",
           "\\\\\\\"key\\\\\\\":\\\\\\\"<redacted>\\\\\\\"");
    expect("{\"log\":\"KEY=\\\"a b\",\"n\":1}", "{\"log\":\"KEY=\\\"<redacted>\",\"n\":1}");
}

/* A secret is found in every notation. */
static void test_writing(void **state)
{
    expect("a\\\\\\\"b\\\\\\\\c<d>&e\\\\nf, g", "<redacted>"); /* JSON in JSON */
    expect("a\\u0022b\\u005cc\\u003Cd>&e\\x0af, g.", "<redacted>.");
    expect("a%22b%5Cc%3Cd%3E%26e%0Af%2C%20g&x", "<redacted>&x");
    expect("a&#34;b\\c&#x3c;d>&e f, g", "<redacted>"); /* its newline is printed as a blank */
    expect("%68unter2-hunter2", "<redacted>");
    expect("\\u0068unter2-hunter2", "<redacted>");
    expect("\\\\hunter2-hunter2\\n", "<redacted>\\n");
}

/* No escape and no character is cut in two, and none hides the beginning of a secret. */
static void test_escapes(void **state)
{
    expect("\"x\\nvapi-aaaaaaaaaaaaaaaaaaaaaaaa\"", "\"x<redacted>\""); /* found by fuzz_doctor */
    expect("\"x\\nghp_0123456789abcdefghijABCDEFGHIJ\"", "\"x\\n<redacted>\"");
    expect("\\u000aghp_0123456789abcdefghijABCDEFGHIJ", "\\u000a<redacted>");
    expect("\\thunter2-hunter2\\\"", "\\t<redacted>\\\"");
    expect("KEY=a\\tb c", "KEY=<redacted> c");
    expect("\xc3\xa4hunter2-hunt\xc3\xa4", "\xc3\xa4<redacted>\xc3\xa4");
}

/* If two matches overlap, both are replaced completely. */
static void test_overlap(void **state)
{
    expect("TOKEN=https://u:p,q@h/x,y", "TOKEN=<redacted>@h/x,y");
    expect("ftp://hunter2-hunter2:abc@h", "ftp://<redacted>:<redacted>@h");
    expect("hunter2-hunter2-hunter2", "<redacted>");
    expect("hunter2-hunter2ghp_0123456789abcdefghijABCDEFGHIJ", "<redacted><redacted>");
    expect("KEY=KEY=KEY=a", "KEY=<redacted>");
    char name[400];
    memset(name, 'x', sizeof(name));
    memcpy(name + 300, "_TOKEN=abcdef z", 16);
    struct buf out = {0};
    redact_text(r, name, strlen(name), &out);
    assert_memory_equal((char *)out.data + 300, "_TOKEN=<redacted> z", 19);
    buf_fini(&out);
}

static void test_string(void **state)
{
    char text[32] = "ab hunter2-hunter2 x", small[19] = "KEY=\"a\" \xc3\xa4", tight[8] = "KEY=abc";
    redact_string(r, text, sizeof(text));
    assert_string_equal(text, "ab <redacted> x");
    redact_string(r, tight, sizeof(tight));
    assert_string_equal(tight, "KEY=<re");
    redact_string(r, small, sizeof(small));
    assert_string_equal(small, "KEY=\"<redacted>\" ");
}

static void test_json(void **state)
{
    static const char text[] =
        "{\"a\": [\"KEY=\", \"x TOKEN='b c'\", 1, null, \"\\nvapi-aaaaaaaaaaaaaaaaaaaaaaaa\"], "
        "\"my_key\": \"q\", \"keys\": true, \"hunter2-hunter2\": {\"b\": \"correct horse\"}, "
        "\"token\": \"off\"}";
    static const char want[] =
        "{\"a\": [\"KEY=\", \"x TOKEN='<redacted>'\", 1, null, "
        "\"\\nvapi-aaaaaaaaaaaaaaaaaaaaaaaa\"], \"my_key\": "
        "\"<redacted>\", \"keys\": true, \"<redacted>\": {\"b\": \"<redacted>\"}, \"token\": "
        "\"off\"}";
    struct err err;
    auto_json json_t *j = NULL, *wanted = NULL;
    assert_int_equal(json_read(text, strlen(text), "text", &j, &err), 0);
    assert_int_equal(json_read(want, strlen(want), "want", &wanted, &err), 0);
    auto_json json_t *clean = redact_json(r, j);
    assert_true(json_equal(clean, wanted));
    assert_null(redact_json(r, NULL));
}

/* NULs are ordinary bytes. Redacting a redacted text changes nothing. */
static void test_bytes(void **state)
{
    static const char text[] = "A=1\0HF_TOKEN=hunter2-hunter2\0B=2";
    static const char want[] = "A=1\0HF_TOKEN=<redacted>\0B=2";
    struct buf out = {0};
    redact_text(r, text, sizeof(text), &out);
    assert_int_equal(out.len, sizeof(want));
    assert_memory_equal(out.data, want, sizeof(want));
    redact_buf(r, &out, 0);
    assert_int_equal(out.len, sizeof(want));
    assert_memory_equal(out.data, want, sizeof(want));
    buf_put(&out, "hunter2-hunter2", 15);
    redact_buf(r, &out, sizeof(want));
    assert_int_equal(out.len, sizeof(want) + strlen(REDACTED));
    buf_fini(&out);
}

/* Random bytes of the characters that secrets consist of: no overrun (ASan), bounded growth, and
 * the rest of the text is unchanged. */
static void test_random(void **state)
{
    static const char letters[] = "=:/@\"'KEYTOKEN_hunter2-AKIA eyJ.\0bearer ";
    uint32_t seed = 1;
    for (int round = 0; round < 2000; round++) {
        char text[64];
        struct buf out = {0};
        size_t len = (size_t)round % sizeof(text);
        for (size_t i = 0; i < len; i++) {
            seed = seed * 1664525 + 1013904223;
            text[i] = letters[(seed >> 16) % sizeof(letters)];
        }
        char *exact = malloc(len + 1);
        memcpy(exact, text, len);
        char *tight = realloc(exact, len ? len : 1);
        redact_text(r, tight, len, &out);
        assert_false(out.failed);
        assert_true(out.len <= len * 11);
        free(tight);
        buf_fini(&out);
    }
}

static void test_no_environment(void **state)
{
    struct redact *forms;
    struct buf out = {0};
    assert_int_equal(redact_create(&forms, NULL), 0);
    redact_text(forms, "hunter2-hunter2 TOKEN=abc", 25, &out);
    buf_put_u8(&out, 0);
    assert_string_equal((char *)out.data, "hunter2-hunter2 TOKEN=<redacted>");
    buf_fini(&out);
    redact_destroy(forms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_forms),   cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_writing), cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_overlap), cmocka_unit_test(test_string),
        cmocka_unit_test(test_json),    cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_random),  cmocka_unit_test(test_no_environment),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
