/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cli: hvd-doctor's command line: accepted and refused arguments with their messages; the man
 * page and the completions have every option and command.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"
#include "diagnostics/cli/cli.h"

static struct cli cli;
static struct err err;

static int parse(const char *line)
{
    static char text[512];
    char *argv[64] = {(char *)"hvd-doctor"}, *save = NULL;
    int argc = 1;
    cli_fini(&cli);
    snprintf(text, sizeof(text), "%s", line);
    for (char *word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save))
        argv[argc++] = strcmp(word, "''") == 0 ? (char *)"" : word;
    err = (struct err){0};
    return cli_parse(&cli, argc, argv, &err);
}

static void good(const char *line)
{
    if (parse(line) < 0)
        fail_msg("%s: %s", line, err.msg);
}

static void test_good(void **state)
{
    good("");
    assert_int_equal(cli.command, CLI_CHECK);
    assert_false(cli.named);
    assert_int_equal(cli.job.gpus, -1);
    good("check --level 2 --only shm-size,nccl-* --only mpi --skip=HVD3001 --profile gpu,k8s "
         "--ranks 16 --local-ranks=8 --gpus 0 --timeout 2.5 --data /d --network-interfaces eth0 "
         "--silence a=b=c --strict -q -v --json --rules r --root m --prober p --color never");
    assert_true(cli.named && cli.strict && cli.quiet && cli.verbose);
    assert_int_equal(cli.job.level, 2);
    assert_int_equal(cli.only.n, 3);
    assert_string_equal(cli.only.v[0], "shm-size");
    assert_string_equal(cli.only.v[1], "nccl-*");
    assert_string_equal(cli.only.v[2], "mpi");
    assert_string_equal(cli.skip.v[0], "HVD3001");
    assert_int_equal(cli.job.profiles, PROFILE_GPU | PROFILE_K8S);
    assert_int_equal(cli.job.ranks, 16);
    assert_int_equal(cli.job.local_ranks, 8);
    assert_int_equal(cli.job.gpus, 0);
    assert_int_equal(cli.job.timeout_ms, 2500);
    assert_string_equal(cli.silences[0].pattern, "a");
    assert_string_equal(cli.silences[0].reason, "b=c");
    assert_int_equal(cli.format, CLI_JSON);
    assert_int_equal(cli.color, CLI_COLOR_NEVER);
    good("--json list");
    assert_int_equal(cli.command, CLI_LIST);
    good("match --failed -- --odd - x");
    assert_int_equal(cli.args.n, 3);
    assert_string_equal(cli.args.v[0], "--odd");
    assert_string_equal(cli.args.v[1], "-");
    good("explain list");
    assert_string_equal(cli.args.v[0], "list");
    good("--json --json");
    good("diff --help");
    assert_true(cli.help);
}

static void test_bad(void **state)
{
    static const struct {
        const char *line, *words;
    } rows[] = {
        {"chek", "no command \"chek\"; did you mean \"check\"?"},
        {"quux", "no command \"quux\"; see hvd-doctor --help"},
        {"--levle 1", "unknown option --levle; did you mean --level?"},
        {"--zzzzzzzz", "unknown option --zzzzzzzz; see hvd-doctor --help"},
        {"-x", "unknown option -x; see hvd-doctor --help"},
        {"--level", "--level needs N"},
        {"--level 0", "--level: \"0\": want an integer from 1 to 3"},
        {"--level 4", "--level: \"4\": want an integer from 1 to 3"},
        {"--level 1x", "--level: \"1x\": want an integer from 1 to 3"},
        {"--level=", "--level: \"\": want an integer from 1 to 3"},
        {"--ranks -1", "--ranks: \"-1\": want an integer from 1 to 1048576"},
        {"--ranks 99999999999999999999", "want an integer from 1 to 1048576"},
        {"--gpus -1", "--gpus: \"-1\": want an integer from 0 to 1024"},
        {"--timeout 0", "--timeout: \"0\": want seconds from 0.1 to 3600"},
        {"--timeout nan", "--timeout: \"nan\": want seconds from 0.1 to 3600"},
        {"--timeout 1h", "--timeout: \"1h\": want seconds from 0.1 to 3600"},
        {"--profile tpu", "--profile: \"tpu\": want cpu, gpu, k8s or launcher"},
        {"--profile gpu,", "--profile: an empty word"},
        {"--only ,a", "--only: an empty word"},
        {"--only=", "--only: an empty word"},
        {"--silence a", "--silence: \"a\": want ID=REASON; the reason is required"},
        {"--silence a=", "--silence: \"a=\": want ID=REASON; the reason is required"},
        {"--silence =b", "--silence: \"=b\": want ID=REASON; the reason is required"},
        {"--color red", "--color: \"red\": want auto, always or never"},
        {"--json --npd", "--npd: only one output format can be chosen"},
        {"--rules=", "--rules: an empty word"},
        {"--strict=1", "--strict takes no value"},
        {"list --strict", "--strict is not an option of \"list\"; see hvd-doctor list --help"},
        {"match --npd x", "--npd is not an option of \"match\""},
        {"check x", "check takes no argument (\"x\")"},
        {"list x", "list takes no argument (\"x\")"},
        {"match", "match needs FILE...|-"},
        {"explain", "explain needs ID..."},
        {"serve", "serve needs [ADDR:]PORT"},
        {"-- x", "check takes no argument (\"x\")"},
        {"check ''", "check takes no argument (\"\")"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int rc = parse(rows[i].line);
        if (rc >= 0 || !strstr(err.msg, rows[i].words))
            fail_msg("%s: %d \"%s\"", rows[i].line, rc, err.msg);
    }
}

static void test_too_many(void **state)
{
    static char word[] = "x", match[] = "match", program[] = "hvd-doctor";
    char *argv[CLI_WORDS + 4] = {program, match};
    for (int i = 2; i < CLI_WORDS + 3; i++)
        argv[i] = word;
    cli_fini(&cli);
    assert_int_equal(cli_parse(&cli, CLI_WORDS + 2, argv, &err), 0);
    cli_fini(&cli);
    assert_int_equal(cli_parse(&cli, CLI_WORDS + 3, argv, &err), -E2BIG);
}

static void test_job(void **state)
{
    struct cli_job job = {.gpus = -1};
    char text[] = "--profile=gpu\n--local-ranks 8\r\n\t--ranks=16\n";
    assert_int_equal(cli_parse_job(&job, text, "options", &err), 0);
    assert_int_equal(job.profiles, PROFILE_GPU);
    assert_int_equal(job.local_ranks, 8);
    assert_int_equal(job.ranks, 16);
    char bad[] = "--profile=gpu\n--what";
    assert_true(cli_parse_job(&job, bad, "DIR/options", &err) < 0);
    assert_non_null(strstr(err.msg, "DIR/options: unknown option --what"));
}

/* Each word stands in the text, and not only as the beginning of a longer word. */
static void expect_word(const char *text, const char *word, const char *where)
{
    size_t n = strlen(word);
    for (const char *p = text; (p = strstr(p, word)); p += n) {
        if (!strchr("-abcdefghijklmnopqrstuvwxyz", p[n]) || !p[n])
            return;
    }
    fail_msg("%s does not name %s", where, word);
}

/* man writes - as \-. */
static char *read_file(const char *path)
{
    char *text, *to;
    assert_int_equal(fd_read_file(path, 1 << 20, &text, NULL), 0);
    to = text;
    for (const char *p = text; *p; p++) {
        if (*p != '\\')
            *to++ = *p;
    }
    *to = '\0';
    return text;
}

static void test_documents(void **state)
{
    auto_free char *man = read_file("diagnostics/hvd-doctor.1");
    auto_free char *zsh = read_file("diagnostics/_hvd-doctor");
    auto_free char *bash = read_file("diagnostics/hvd-doctor.bash");
    const char *names, *arg, *help;
    const struct cli_command *c;
    unsigned commands;
    for (size_t i = 0; cli_option_at(i, &names, &arg, &help, &commands); i++) {
        char one[64];
        for (const char *p = names; *p; p += strcspn(p, "|") + (p[strcspn(p, "|")] == '|')) {
            snprintf(one, sizeof(one), "%.*s", (int)strcspn(p, "|"), p);
            expect_word(man, one, "the man page");
            expect_word(zsh, one, "the zsh completion");
        }
        if (arg) /* the bash completion lists only options with a value */
            expect_word(bash, one, "the bash completion");
        assert_true(strlen(help) > 5);
    }
    for (size_t i = 0; (c = cli_command_at(i)); i++) {
        expect_word(man, c->name, "the man page");
        expect_word(zsh, c->name, "the zsh completion");
        expect_word(bash, c->name, "the bash completion");
    }
}

static int teardown(void **state)
{
    cli_fini(&cli);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),      cmocka_unit_test(test_bad),
        cmocka_unit_test(test_too_many),  cmocka_unit_test(test_job),
        cmocka_unit_test(test_documents),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
