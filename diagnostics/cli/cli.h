/* SPDX-License-Identifier: Apache-2.0
 *
 * cli: the parsed command line of hvd-doctor: a table of commands and one of options, from which
 * the help text is made, too. main parses it once and calls the command; strings belong to argv.
 *
 * A command returns its exit code, or a negative errno with err set: one line on standard error and
 * exit code 2.
 */
#ifndef HVD_DIAGNOSTICS_CLI_CLI_H
#define HVD_DIAGNOSTICS_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "diagnostics/doctor.h"

enum {
    CLI_GOOD = 0,
    CLI_FINDING = 1,
    CLI_USAGE = 2,   /* wrong usage, bad input, a report that could not be written */
    CLI_UNKNOWN = 3, /* nothing could be determined */
};

enum cli_format { CLI_TEXT, CLI_JSON, CLI_JSONL, CLI_JUNIT, CLI_NPD };
enum cli_color { CLI_COLOR_AUTO, CLI_COLOR_ALWAYS, CLI_COLOR_NEVER };

#define CLI_WORDS 256

struct cli_words {
    const char *v[CLI_WORDS];
    size_t n;
};

/* Commands are bits, so that an option can list the commands it belongs to. */
enum cli_name {
    CLI_CHECK = 1,
    CLI_LIST = 2,
    CLI_EXPLAIN = 4,
    CLI_MATCH = 8,
    CLI_DIFF = 16,
    CLI_BUNDLE = 32,
    CLI_GATHER = 64,
    CLI_SERVE = 128,
    CLI_WORKERS = 256,
};

/* The job that the checks are for. What is unset is guessed (setting.h). */
struct cli_job {
    unsigned profiles;           /* 0: unset */
    int ranks, local_ranks;      /* 0: unset */
    int gpus;                    /* -1: unset */
    int level;                   /* 0: unset */
    int timeout_ms;              /* 0: unset */
    const char *data, *networks; /* NULL: unset */
};

struct cli {
    enum cli_name command;
    bool named; /* a command was given by name */
    bool help, version;
    struct cli_words args;
    struct cli_job job;
    struct cli_words only, skip;
    struct silence silences[CLI_WORDS];
    size_t nsilences;
    enum cli_format format;
    enum cli_color color;
    bool strict, quiet, verbose, failed;
    const char *rules, *root, *prober, *output;
    struct cli_words logs;
    const char *as_cause, *as_noise; /* match */
    int every;                       /* serve: seconds */
    char *text;                      /* copies of the words of LIST options; owned */
    size_t text_len, text_cap;
};

typedef int cli_command_f(const struct cli *cli, struct err *err);

struct cli_command {
    const char *name;
    enum cli_name bit;
    cli_command_f *run;
    const char *args; /* "FILE...", NULL: takes none */
    const char *help;
};

/* Parses argv[0..argc). Call cli_fini() whatever is returned. */
int cli_parse(struct cli *ret, int argc, char **argv, struct err *err);
void cli_fini(struct cli *cli);

/* The i-th command, the default one first; NULL at the end. */
const struct cli_command *cli_command_at(size_t i);
const struct cli_command *cli_command_of(enum cli_name bit);

/* The i-th option: its names with | between them, its argument or NULL, its help and the commands
 * it belongs to; false at the end. Completions and the man page are tested against it. */
bool cli_option_at(size_t i, const char **names, const char **arg, const char **help,
                   unsigned *commands);

/* Parses the words of a captured machine's "options" file into ret. */
int cli_parse_job(struct cli_job *ret, char *text, const char *name, struct err *err);

cli_command_f cli_check, cli_list, cli_explain, cli_match, cli_diff, cli_bundle, cli_gather,
    cli_serve, cli_workers;

#endif
