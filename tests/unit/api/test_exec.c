/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/api/exec and credentials: output and exit of plugins, when they run again, and
 * token files that change.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "operator/api/credentials.h"
#include "operator/api/exec.h"
#include "operator/objects/stamp.h"

#define V1 "client.authentication.k8s.io/v1"

static struct loop loop;
static char dir[64];

static const char *put(const char *name, const char *text)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, 0700), 0);
    return path;
}

static int parse(const char *text, struct exec_credential *c, struct err *err)
{
    return exec_parse(text, strlen(text), V1, c, err);
}

static void test_parse(void **state)
{
    struct exec_credential c = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(parse("{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\",\"status\":{"
                           "\"token\":\"abc\",\"expirationTimestamp\":\"2026-11-21T10:00:00Z\"}}",
                           &c, &err),
                     0);
    assert_string_equal(c.token, "abc");
    assert_null(c.cert_pem);
    assert_true(c.expires_us == 1795255200000000);
    exec_credential_fini(&c);
    assert_int_equal(parse("{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\",\"status\":{"
                           "\"clientCertificateData\":\"C\",\"clientKeyData\":\"K\"}}",
                           &c, &err),
                     0);
    assert_null(c.token);
    assert_string_equal(c.key_pem, "K");
    assert_true(c.expires_us == INT64_MAX);
    exec_credential_fini(&c);
}

static void test_parse_refused(void **state)
{
    static const char *const cases[] = {
        "",
        "token",
        "{\"kind\":\"Config\",\"apiVersion\":\"" V1 "\",\"status\":{\"token\":\"a\"}}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"v0\",\"status\":{\"token\":\"a\"}}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\"}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\",\"status\":{}}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\",\"status\":{\"token\":\"\"}}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1 "\",\"status\":{\"token\":\"a\\nb\"}}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1
        "\",\"status\":{\"clientCertificateData\":\"a\"}}",
        "{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1
        "\",\"status\":{\"token\":\"a\",\"expirationTimestamp\":\"soon\"}}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct exec_credential c = {0};
        struct err err = {0};
        assert_int_equal(parse(cases[i], &c, &err), -EINVAL);
        assert_null(c.token);
    }
}

/* ---- running ------------------------------------------------------------------------------------
 */

static struct {
    int called;
    char token[64], why[512];
} got;

static void on_exec(void *arg, struct exec_credential *c, const struct err *err)
{
    (void)arg;
    got.called++;
    snprintf(got.token, sizeof(got.token), "%s", c && c->token ? c->token : "");
    snprintf(got.why, sizeof(got.why), "%s", c ? "" : err_text(err));
    if (c)
        exec_credential_fini(c);
}

static void until(const int *counter, int n)
{
    uint64_t deadline = deadline_in_ms(30000);
    while (*counter < n && !deadline_passed(deadline))
        loop_once(&loop, 50);
    assert_true(*counter >= n);
}

static void run_plugin(const char *path, char **env, bool info)
{
    char *argv[] = {(char *)path, "an argument", NULL};
    struct access a = {.server = "https://h:1",
                       .ca_pem = "CA",
                       .exec = {.api_version = V1,
                                .argv = argv,
                                .env = env,
                                .hint = "install it",
                                .cluster_info = info}};
    struct exec_run *run;
    struct err err = {0};
    memset(&got, 0, sizeof(got));
    assert_int_equal(exec_start(&run, &loop, &a, on_exec, NULL, &err), 0);
    assert_int_equal(got.called, 0);
    until(&got.called, 1);
}

static void test_run(void **state)
{
    char *env[] = {"WHO=o'brien $HOME", NULL};
    (void)state;
    run_plugin(
        put("plugin",
            "#!/bin/sh\n"
            "echo 'talk on stderr' >&2\n"
            "printf '{\"kind\":\"ExecCredential\",\"apiVersion\":\"%s\",\"status\":{\"token\":"
            "\"%s/%s/%s\"}}' " V1 " \"$WHO\" \"$1\" "
            "\"$(echo \"$KUBERNETES_EXEC_INFO\" | grep -c '\"certificate-authority-data\":"
            "\"Q0E=\"')\"\n"),
        env, true);
    assert_string_equal(got.why, "");
    assert_string_equal(got.token, "o'brien $HOME/an argument/1");
    run_plugin("/nonexistent/plugin", NULL, false);
    assert_non_null(strstr(got.why, "No such file"));
    assert_non_null(strstr(got.why, "install it"));
    run_plugin(put("plugin", "#!/bin/sh\necho no login >&2\nexit 3\n"), NULL, false);
    assert_non_null(strstr(got.why, "exit code 3: no login"));
    run_plugin(put("plugin", "#!/bin/sh\nkill -9 $$\n"), NULL, false);
    assert_non_null(strstr(got.why, "signal 9"));
    run_plugin(put("plugin", "#!/bin/sh\nhead -c 400000 /dev/zero\n"), NULL, false);
    assert_non_null(strstr(got.why, "more than"));
    run_plugin(put("plugin", "#!/bin/sh\necho hello\n"), NULL, false);
    assert_non_null(strstr(got.why, "an ExecCredential"));
}

static void test_cancel(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof(path), "%s", put("plugin", "#!/bin/sh\nsleep 1000\n"));
    char *argv[] = {path, NULL};
    struct access a = {.server = "https://h", .exec = {.api_version = V1, .argv = argv}};
    struct exec_run *run;
    memset(&got, 0, sizeof(got));
    assert_int_equal(exec_start(&run, &loop, &a, on_exec, NULL, NULL), 0);
    loop_once(&loop, 10);
    exec_cancel(run);
    assert_int_equal(got.called, 0);
}

/* ---- credentials --------------------------------------------------------------------------------
 */

static int ready;
static char problem[1024];

static void on_ready(void *arg, const char *cert, const char *key, const struct err *err)
{
    (void)arg;
    (void)cert;
    (void)key;
    snprintf(problem, sizeof(problem), "%s", err ? err->msg : "");
    ready++;
}

static void test_token_file(void **state)
{
    char path[128];
    struct credentials *c;
    struct err err = {0};
    const char *header;
    (void)state;
    snprintf(path, sizeof(path), "%s", put("token", "one\n"));
    struct access a = {.token_file = path};
    assert_int_equal(credentials_open(&c, &loop, &a, on_ready, NULL, &err), 0);
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer one");
    unsigned serial = credentials_serial(c);
    put("token", "two");
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer one"); /* read again after a minute */
    assert_true(credentials_refused(c, serial));
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer two");
    assert_false(credentials_refused(c, credentials_serial(c))); /* there is no other credential */
    put("token", "two words");
    assert_false(credentials_refused(c, credentials_serial(c)));
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer two");
    credentials_close(c);
    a.token_file = "/nonexistent/token";
    assert_int_equal(credentials_open(&c, &loop, &a, on_ready, NULL, &err), 0);
    assert_int_equal(credentials_header(c, &header, &err), -ENOENT);
    assert_non_null(strstr(err.msg, "/nonexistent/token"));
    credentials_close(c);
}

static void test_basic_and_none(void **state)
{
    struct access a = {.username = "me", .password = "p:w"};
    struct credentials *c;
    const char *header;
    (void)state;
    assert_int_equal(credentials_open(&c, &loop, &a, on_ready, NULL, NULL), 0);
    assert_int_equal(credentials_header(c, &header, NULL), 0);
    assert_string_equal(header, "Authorization: Basic bWU6cDp3");
    credentials_close(c);
    a = (struct access){0};
    assert_int_equal(credentials_open(&c, &loop, &a, on_ready, NULL, NULL), 0);
    assert_int_equal(credentials_header(c, &header, NULL), 0);
    assert_null(header);
    assert_false(credentials_refused(c, credentials_serial(c)));
    credentials_close(c);
}

/* Writes a plugin and its path: run N prints the token tN, with the expiry time from the file
 * "expires". */
static const char *counting_plugin(char path[128])
{
    char script[512];
    snprintf(script, sizeof(script),
             "#!/bin/sh\ncd %s\necho x >> runs\n"
             "echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"" V1
             "\",\"status\":{\"token\":\"t'$(wc -l < runs)'\",\"expirationTimestamp\":"
             "\"'$(cat expires)'\"}}'\n",
             dir);
    put("runs", "");
    snprintf(path, 128, "%s", put("plugin", script));
    return path;
}

/* The plugin runs at the first request, and again when its token is about to expire. */
static void test_plugin(void **state)
{
    char path[128];
    struct credentials *c;
    struct err err = {0};
    const char *header;
    (void)state;
    char *argv[] = {(char *)counting_plugin(path), NULL};
    put("expires", "2020-01-01T00:00:00Z");
    struct access a = {.server = "https://h", .exec = {.api_version = V1, .argv = argv}};
    ready = 0;
    assert_int_equal(credentials_open(&c, &loop, &a, on_ready, NULL, &err), 0);
    assert_int_equal(credentials_header(c, &header, &err), 1);
    assert_int_equal(credentials_header(c, &header, &err), 1); /* still the first run */
    until(&ready, 1);
    assert_non_null(strstr(problem, "has expired already"));
    put("expires", "2200-01-01T00:00:00Z");
    assert_int_equal(credentials_header(c, &header, &err), 1);
    until(&ready, 2);
    assert_string_equal(problem, "");
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer t2");
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_int_equal(ready, 2);
    /* A 401 for a token that the plugin has just printed does not run the plugin again: it would
     * run again and again. */
    assert_false(credentials_refused(c, credentials_serial(c)));
    assert_true(credentials_refused(c, credentials_serial(c) - 1));
    credentials_close(c);
}

/* Regression: a token with a life of less than 30 s was never used, and its plugin ran again and
 * again. */
static void test_plugin_of_short_tokens(void **state)
{
    char path[128], stamp[STAMP_MAX];
    struct credentials *c;
    struct err err = {0};
    const char *header;
    (void)state;
    char *argv[] = {(char *)counting_plugin(path), NULL};
    struct access a = {.server = "https://h", .exec = {.api_version = V1, .argv = argv}};
    put("expires", stamp_text((int64_t)clock_wall_us() + 3000000, stamp));
    ready = 0;
    assert_int_equal(credentials_open(&c, &loop, &a, on_ready, NULL, &err), 0);
    assert_int_equal(credentials_header(c, &header, &err), 1);
    until(&ready, 1);
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer t1");
    put("expires", stamp_text((int64_t)clock_wall_us() + 60000000, stamp));
    uint64_t deadline = deadline_in_ms(10000);
    while (credentials_header(c, &header, &err) == 0 && !deadline_passed(deadline))
        assert_string_equal(header, "Authorization: Bearer t1"); /* until it expires */
    until(&ready, 2);
    assert_int_equal(credentials_header(c, &header, &err), 0);
    assert_string_equal(header, "Authorization: Bearer t2");
    credentials_close(c);
}

static int setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/hvd-exec-XXXXXX");
    return mkdtemp(dir) ? loop_init(&loop) : -1;
}

static int teardown(void **state)
{
    char command[96];
    (void)state;
    loop_fini(&loop);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),      cmocka_unit_test(test_parse_refused),
        cmocka_unit_test(test_run),        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_token_file), cmocka_unit_test(test_basic_and_none),
        cmocka_unit_test(test_plugin),     cmocka_unit_test(test_plugin_of_short_tokens)};
    return cmocka_run_group_tests_name("api/exec", tests, setup, teardown);
}
