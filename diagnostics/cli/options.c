/* SPDX-License-Identifier: Apache-2.0
 *
 * options: see cli.h. An option is a row: names, argument, help, commands, setter.
 */
#include "diagnostics/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/cli/words.h"
#include "core/base/names.h"
#include "core/base/nearest.h"

/* Sets one option. what: the flag, number or word of struct cli that it sets. */
typedef int option_f(struct cli *cli, const char *value, int what, struct err *err);

enum flag { F_HELP, F_VERSION, F_STRICT, F_QUIET, F_VERBOSE, F_FAILED };
enum word { W_RULES, W_ROOT, W_PROBER, W_OUTPUT, W_DATA, W_NETWORKS, W_CAUSE, W_NOISE };
enum number { N_LEVEL, N_RANKS, N_LOCAL, N_GPUS, N_EVERY };

static option_f set_flag, set_word, set_number, set_format, set_list, set_profile, set_timeout,
    set_silence, set_color, set_log;

#define RUNS    (CLI_CHECK | CLI_BUNDLE | CLI_GATHER | CLI_SERVE | CLI_WORKERS)
#define CHOOSES (RUNS | CLI_LIST)
#define ANY     (~0u)

static const struct option {
    const char *names, *arg, *help;
    unsigned commands;
    option_f *set;
    int what;
} options[] = {
    {"--level", "N", "1: read only (default); 2: also test this machine; 3: and the network",
     CHOOSES, set_number, N_LEVEL},
    {"--only", "LIST", "these checks: ids, codes, groups, prefix-*", CHOOSES, set_list, 0},
    {"--skip", "LIST", "not these checks", CHOOSES, set_list, 1},
    {"--profile", "LIST", "cpu, gpu, k8s, launcher (default: detected)", RUNS, set_profile, 0},
    {"--ranks", "N", "ranks of the whole job", RUNS, set_number, N_RANKS},
    {"--local-ranks", "N", "ranks on this machine", RUNS, set_number, N_LOCAL},
    {"--gpus", "N", "GPUs the job wants here (default with --profile gpu: --local-ranks)", RUNS,
     set_number, N_GPUS},
    {"--data", "DIR", "where the data set is (default: the current directory)", RUNS, set_word,
     W_DATA},
    {"--network-interfaces", "NAMES", "interfaces the job uses between hosts (HVD_IFACE)", RUNS,
     set_word, W_NETWORKS},
    {"--timeout", "SECONDS", "time limit of all probes together (10; with --npd 4)", RUNS,
     set_timeout, 0},
    {"--silence", "ID=REASON", "show this check's result, but do not count it", RUNS, set_silence,
     0},
    {"--rules", "FILE", "version rules instead of the built-in ones", RUNS, set_word, W_RULES},
    {"--root", "DIR", "check a captured machine (hvd-doctor gather)", CLI_CHECK | CLI_SERVE,
     set_word, W_ROOT},
    {"--prober", "FILE", "path of hvd-probe (default: beside this program)", RUNS, set_word,
     W_PROBER},
    {"--strict", NULL, "a warning counts as a failure", CLI_CHECK | CLI_SERVE | CLI_WORKERS,
     set_flag, F_STRICT},
    {"-q|--quiet", NULL, "only the verdict", CLI_CHECK | CLI_MATCH | CLI_DIFF | CLI_WORKERS,
     set_flag, F_QUIET},
    {"-v|--verbose", NULL, "a line for every check", CLI_CHECK | CLI_WORKERS, set_flag, F_VERBOSE},
    {"--json", NULL, "for programs: schema hvd-doctor/1",
     CLI_CHECK | CLI_LIST | CLI_EXPLAIN | CLI_MATCH | CLI_DIFF | CLI_WORKERS, set_format, CLI_JSON},
    {"--jsonl", NULL, "a line of JSON for each check, as soon as it is known", CLI_CHECK,
     set_format, CLI_JSONL},
    {"--junit", NULL, "JUnit XML, for CI", CLI_CHECK, set_format, CLI_JUNIT},
    {"--npd", NULL, "for node-problem-detector: one line, exit code 0, 1 or 2", CLI_CHECK,
     set_format, CLI_NPD},
    {"--color", "WHEN", "auto (default: on a terminal), always, never",
     CLI_CHECK | CLI_EXPLAIN | CLI_DIFF, set_color, 0},
    {"--failed", NULL, "treat the job as failed, even if the logs do not show it", CLI_MATCH,
     set_flag, F_FAILED},
    {"--as-cause", "IDS", "these findings count as causes (\"xid-63\")", CLI_MATCH, set_word,
     W_CAUSE},
    {"--as-noise", "IDS", "these findings do not count", CLI_MATCH, set_word, W_NOISE},
    {"--log", "FILE", "a log of the job to include (its last MiB); may be repeated", CLI_BUNDLE,
     set_log, 0},
    {"-o|--output", "FILE", "the archive (default: hvd-doctor-HOST-TIME.tar)", CLI_BUNDLE, set_word,
     W_OUTPUT},
    {"--every", "SECONDS", "time between two checks of the machine (60)", CLI_SERVE, set_number,
     N_EVERY},
    {"-h|--help", NULL, "this text; after a command: its options", ANY, set_flag, F_HELP},
    {"--version", NULL, "the version", ANY, set_flag, F_VERSION},
};

#define NOPTIONS (sizeof(options) / sizeof(options[0]))

static const struct cli_command commands[] = {
    {"check", CLI_CHECK, cli_check, NULL, "check this machine (the default command)"},
    {"list", CLI_LIST, cli_list, NULL, "list all checks"},
    {"explain", CLI_EXPLAIN, cli_explain, "ID...", "what a check looks at, why, and what to do"},
    {"match", CLI_MATCH, cli_match, "FILE...|-", "name the cause of a failed run from its logs"},
    {"diff", CLI_DIFF, cli_diff, "A.json B.json", "what differs between two reports (--json)"},
    {"bundle", CLI_BUNDLE, cli_bundle, NULL,
     "a tar archive for a bug report, with secrets redacted"},
    {"gather", CLI_GATHER, cli_gather, "DIR", "record this machine for --root DIR"},
    {"serve", CLI_SERVE, cli_serve, "[ADDR:]PORT",
     "HTTP: /metrics (Prometheus), /readyz, /healthz"},
    {"workers", CLI_WORKERS, cli_workers, NULL,
     "checks between machines; hvdrun --doctor -H h1,h2 starts it on each"},
};

const struct cli_command *cli_command_at(size_t i)
{
    return i < sizeof(commands) / sizeof(commands[0]) ? &commands[i] : NULL;
}

const struct cli_command *cli_command_of(enum cli_name bit)
{
    const struct cli_command *c;
    for (size_t i = 0; (c = cli_command_at(i)); i++) {
        if (c->bit == bit)
            return c;
    }
    return &commands[0];
}

bool cli_option_at(size_t i, const char **names, const char **arg, const char **help,
                   unsigned *bits)
{
    if (i >= NOPTIONS)
        return false;
    *names = options[i].names;
    *arg = options[i].arg;
    *help = options[i].help;
    *bits = options[i].commands;
    return true;
}

/* ---- setters -------------------------------------------------------------------------------- */

static int set_flag(struct cli *cli, const char *value, int what, struct err *err)
{
    bool *const flags[] = {
        [F_HELP] = &cli->help,   [F_VERSION] = &cli->version, [F_STRICT] = &cli->strict,
        [F_QUIET] = &cli->quiet, [F_VERBOSE] = &cli->verbose, [F_FAILED] = &cli->failed};
    (void)value, (void)err;
    *flags[what] = true;
    return 0;
}

static int set_word(struct cli *cli, const char *value, int what, struct err *err)
{
    const char **const words[] = {
        [W_RULES] = &cli->rules,    [W_ROOT] = &cli->root,     [W_PROBER] = &cli->prober,
        [W_OUTPUT] = &cli->output,  [W_DATA] = &cli->job.data, [W_NETWORKS] = &cli->job.networks,
        [W_CAUSE] = &cli->as_cause, [W_NOISE] = &cli->as_noise};
    if (!*value)
        return err_set(err, EINVAL, "an empty word");
    *words[what] = value;
    return 0;
}

static int set_number(struct cli *cli, const char *value, int what, struct err *err)
{
    static const struct {
        int min, max;
    } range[] = {[N_LEVEL] = {1, 3},
                 [N_RANKS] = {1, 1 << 20},
                 [N_LOCAL] = {1, 65536},
                 [N_GPUS] = {0, 1024},
                 [N_EVERY] = {1, 86400}};
    int *const numbers[] = {[N_LEVEL] = &cli->job.level,
                            [N_RANKS] = &cli->job.ranks,
                            [N_LOCAL] = &cli->job.local_ranks,
                            [N_GPUS] = &cli->job.gpus,
                            [N_EVERY] = &cli->every};
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (errno || end == value || *end || n < range[what].min || n > range[what].max)
        return err_set(err, EINVAL, "\"%s\": want an integer from %d to %d", value, range[what].min,
                       range[what].max);
    *numbers[what] = (int)n;
    return 0;
}

static int set_format(struct cli *cli, const char *value, int what, struct err *err)
{
    (void)value;
    if (cli->format != CLI_TEXT && cli->format != (enum cli_format)what)
        return err_set(err, EINVAL, "only one output format can be chosen");
    cli->format = (enum cli_format)what;
    return 0;
}

/* Calls f for each piece of "a,b,c". The pieces live as long as cli. */
static int each(struct cli *cli, const char *value, struct err *err,
                int (*f)(struct cli *cli, const char *piece, void *arg, struct err *err), void *arg)
{
    for (;;) {
        size_t n = strcspn(value, ",");
        if (n == 0)
            return err_set(err, EINVAL, "an empty word");
        if (cli->text_len + n + 1 > cli->text_cap)
            return err_set(err, E2BIG, "the list is too long");
        char *piece = memcpy(cli->text + cli->text_len, value, n);
        piece[n] = '\0';
        cli->text_len += n + 1;
        int rc = f(cli, piece, arg, err);
        if (rc < 0 || !value[n])
            return rc;
        value += n + 1;
    }
}

static int add_word(struct cli *cli, const char *piece, void *arg, struct err *err)
{
    struct cli_words *words = arg;
    (void)cli;
    if (words->n == CLI_WORDS)
        return err_set(err, E2BIG, "more than %d words", CLI_WORDS);
    words->v[words->n++] = piece;
    return 0;
}

static int set_list(struct cli *cli, const char *value, int what, struct err *err)
{
    return each(cli, value, err, add_word, what ? &cli->skip : &cli->only);
}

static int add_profile(struct cli *cli, const char *piece, void *arg, struct err *err)
{
    const char *name;
    unsigned bit;
    (void)arg;
    for (size_t i = 0; (name = words_profile(i, &bit)); i++) {
        if (strcmp(name, piece) == 0) {
            cli->job.profiles |= bit;
            return 0;
        }
    }
    return err_set(err, EINVAL, "\"%s\": want cpu, gpu, k8s or launcher", piece);
}

static int set_profile(struct cli *cli, const char *value, int what, struct err *err)
{
    (void)what;
    return each(cli, value, err, add_profile, NULL);
}

static int set_timeout(struct cli *cli, const char *value, int what, struct err *err)
{
    (void)what;
    char *end;
    double s = strtod(value, &end);
    if (end == value || *end || !(s >= 0.1 && s <= 3600))
        return err_set(err, EINVAL, "\"%s\": want seconds from 0.1 to 3600", value);
    cli->job.timeout_ms = (int)(s * 1000);
    return 0;
}

static int set_silence(struct cli *cli, const char *value, int what, struct err *err)
{
    (void)what;
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !equals[1])
        return err_set(err, EINVAL, "\"%s\": want ID=REASON; the reason is required", value);
    size_t n = (size_t)(equals - value);
    if (cli->nsilences == CLI_WORDS || cli->text_len + n + 1 > cli->text_cap)
        return err_set(err, E2BIG, "too many --silence options");
    char *id = memcpy(cli->text + cli->text_len, value, n);
    id[n] = '\0';
    cli->text_len += n + 1;
    cli->silences[cli->nsilences++] = (struct silence){.pattern = id, .reason = equals + 1};
    return 0;
}

static int set_color(struct cli *cli, const char *value, int what, struct err *err)
{
    static const char *const words[] = {"auto", "always", "never"};
    (void)what;
    for (int i = 0; i < 3; i++) {
        if (strcmp(words[i], value) == 0) {
            cli->color = (enum cli_color)i;
            return 0;
        }
    }
    return err_set(err, EINVAL, "\"%s\": want auto, always or never", value);
}

static int set_log(struct cli *cli, const char *value, int what, struct err *err)
{
    (void)what;
    return add_word(cli, value, &cli->logs, err);
}

/* ---- the walk ------------------------------------------------------------------------------- */

static int unknown_option(const char *word, struct err *err)
{
    static char names[NOPTIONS][32];
    char head[64];
    struct nearest near;
    snprintf(head, sizeof(head), "%.*s", (int)strcspn(word, "="), word);
    nearest_init(&near, head);
    for (size_t i = 0; i < NOPTIONS; i++) {
        const char *last = strrchr(options[i].names, '|');
        snprintf(names[i], sizeof(names[i]), "%s", last ? last + 1 : options[i].names);
        nearest_try(&near, names[i]);
    }
    if (nearest_best(&near))
        return err_set(err, EINVAL, "unknown option %s; did you mean %s?", word,
                       nearest_best(&near));
    return err_set(err, EINVAL, "unknown option %s; see hvd-doctor --help", word);
}

static const struct option *find_option(const char *word)
{
    size_t n = strcspn(word, "=");
    for (size_t i = 0; i < NOPTIONS; i++) {
        if (names_have(options[i].names, word, n))
            return &options[i];
    }
    return NULL;
}

/* Finds the option at argv[*i] and its value; *i moves past both. */
static int take_option(struct cli *cli, int argc, char **argv, int *i, const struct option **ret,
                       struct err *err)
{
    const char *word = argv[(*i)++];
    const char *equals = strchr(word, '='), *value = equals ? equals + 1 : NULL;
    const struct option *o = *ret = find_option(word);
    if (!o)
        return unknown_option(word, err);
    if (!o->arg && value)
        return err_set(err, EINVAL, "%.*s takes no value", (int)(equals - word), word);
    if (o->arg && !value) {
        if (*i == argc)
            return err_set(err, EINVAL, "%s needs %s", word, o->arg);
        value = argv[(*i)++];
    }
    int rc = o->set(cli, value, o->what, err);
    return rc < 0 ? err_prefix(err, "%.*s", (int)strcspn(word, "="), word) : 0;
}

/* Sets cli->command to the command that word names; false: there is no such command. */
static bool take_command(struct cli *cli, const char *word)
{
    const struct cli_command *c;
    for (size_t i = 0; (c = cli_command_at(i)); i++) {
        if (strcmp(c->name, word) == 0) {
            cli->command = c->bit;
            return true;
        }
    }
    return false;
}

static int no_command(const char *word, struct err *err)
{
    struct nearest near;
    const struct cli_command *c;
    nearest_init(&near, word);
    for (size_t i = 0; (c = cli_command_at(i)); i++)
        nearest_try(&near, c->name);
    if (nearest_best(&near))
        return err_set(err, EINVAL, "no command \"%s\"; did you mean \"%s\"?", word,
                       nearest_best(&near));
    return err_set(err, EINVAL, "no command \"%s\"; see hvd-doctor --help", word);
}

static int walk(struct cli *cli, int argc, char **argv, unsigned char *seen, struct err *err)
{
    const struct option *option;
    bool options_end = false;
    for (int i = 1; i < argc;) {
        const char *word = argv[i];
        if (!options_end && word[0] == '-' && word[1]) {
            if (strcmp(word, "--") == 0) {
                options_end = true;
                i++;
                continue;
            }
            int rc = take_option(cli, argc, argv, &i, &option, err);
            if (rc < 0)
                return rc;
            seen[option - options] = 1;
            continue;
        }
        i++;
        if (!cli->named && !options_end) {
            if (!take_command(cli, word))
                return no_command(word, err);
            cli->named = true;
            continue;
        }
        if (cli->args.n == CLI_WORDS)
            return err_set(err, E2BIG, "more than %d arguments", CLI_WORDS);
        cli->args.v[cli->args.n++] = word;
    }
    return 0;
}

static int fits(const struct cli *cli, const unsigned char *seen, struct err *err)
{
    const struct cli_command *c = cli_command_of(cli->command);
    for (size_t i = 0; i < NOPTIONS; i++) {
        if (seen[i] && !(options[i].commands & (unsigned)cli->command))
            return err_set(err, EINVAL, "%s is not an option of \"%s\"; see hvd-doctor %s --help",
                           options[i].names, c->name, c->name);
    }
    if (!c->args && cli->args.n)
        return err_set(err, EINVAL, "%s takes no argument (\"%s\")", c->name, cli->args.v[0]);
    if (c->args && !cli->args.n)
        return err_set(err, EINVAL, "%s needs %s", c->name, c->args);
    return 0;
}

int cli_parse(struct cli *ret, int argc, char **argv, struct err *err)
{
    unsigned char seen[NOPTIONS] = {0};
    size_t room = 1;
    memset(ret, 0, sizeof(*ret));
    ret->command = CLI_CHECK;
    ret->job.gpus = -1;
    ret->every = 60;
    for (int i = 1; i < argc; i++)
        room += strlen(argv[i]) + 1;
    ret->text = malloc(room);
    if (!ret->text)
        return err_set(err, ENOMEM, "no memory");
    ret->text_cap = room;
    int rc = walk(ret, argc, argv, seen, err);
    if (rc < 0 || ret->help || ret->version)
        return rc;
    return fits(ret, seen, err);
}

void cli_fini(struct cli *cli)
{
    free(cli->text);
    cli->text = NULL;
}

int cli_parse_job(struct cli_job *ret, char *text, const char *name, struct err *err)
{
    char *argv[64] = {(char *)"hvd-doctor"}, *save = NULL;
    int argc = 1;
    auto_free struct cli *cli = calloc(1, sizeof(*cli));
    if (!cli)
        return err_set(err, ENOMEM, "no memory");
    for (char *word = strtok_r(text, " \t\r\n", &save); word && argc < 64;
         word = strtok_r(NULL, " \t\r\n", &save))
        argv[argc++] = word;
    int rc = cli_parse(cli, argc, argv, err);
    *ret = cli->job;
    cli_fini(cli);
    return rc < 0 ? err_prefix(err, "%s", name) : 0;
}
