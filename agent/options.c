/* SPDX-License-Identifier: Apache-2.0
 *
 * options: see options.h. This file parses the command line and prints the help text; the table is
 * in options_table.c.
 */
#include "agent/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/commands.h"
#include "agent/horovod_config.h"
#include "agent/options_private.h"
#include "core/base/names.h"

static bool is_optional(const struct option *option)
{
    size_t n = strlen(option->arg);
    return option->arg[0] == '[' && option->arg[n - 1] == ']';
}

/* May word be the value of this option? For an optional argument, only one of the listed words may.
 */
static bool is_value(const struct option *option, const char *word)
{
    const char *arg = option->arg;
    char list[64];
    if (!is_optional(option))
        return true;
    snprintf(list, sizeof(list), "%.*s", (int)strlen(arg) - 2, arg + 1);
    return names_have(list, word, strlen(word));
}

/* Does the option take two words ("MIN MAX")? */
static bool is_pair(const struct option *option)
{
    return option->arg && strchr(option->arg, ' ') != NULL;
}

/* Finds the option that a word names. *ret_inline: its value after =, or NULL. */
static const struct option *find_option(const char *word, const char **ret_inline)
{
    size_t n = strcspn(word, "=");
    size_t count;
    const struct option *options = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (names_have(options[i].names, word, n)) {
            *ret_inline = word[n] == '=' ? word + n + 1 : NULL;
            return &options[i];
        }
    }
    return NULL;
}

static int copy_command(struct job *job, char **words)
{
    size_t n = strings_count(words);
    if (n == 0)
        return 0;
    job->argv = calloc(n + 1, sizeof(*job->argv));
    for (size_t i = 0; job->argv && i < n; i++) {
        job->argv[i] = strdup(words[i]);
        if (!job->argv[i])
            return -ENOMEM;
    }
    return job->argv ? 0 : -ENOMEM;
}

/* ---- options from a file -------------------------------------------------------------------- */

/* Whether the command line has set this variable, or -x has. */
static bool is_given(const struct options *o, const char *variable)
{
    size_t n = strlen(variable);
    for (char **e = o->job.env; e && *e; e++)
        if (strncmp(*e, variable, n) == 0 && (*e)[n] == '=')
            return true;
    return false;
}

static bool is_false(const char *value)
{
    return strcasecmp(value, "false") == 0 || strcasecmp(value, "no") == 0 ||
           strcasecmp(value, "off") == 0;
}

/* A value of the configuration file, see horovod_config.h. Each is a variable of the ranks. */
static int take_config(void *arg, const char *name, const char *value, const char *at,
                       struct err *err)
{
    struct options *o = arg;
    const char *unused = NULL;
    char opposite[160], variable[96];
    const struct option *option = find_option(name, &unused);
    if (option && !option->arg && is_false(value)) {
        snprintf(opposite, sizeof(opposite), "--no-%s", name + 2);
        option = find_option(opposite, &unused);
    }
    if (!option) {
        const struct unused_option *other = options_unused(name, strlen(name));
        if (other && !is_false(value))
            options_unused_say(other, name, strlen(name));
        return 0;
    }
    options_variable(option, variable, sizeof(variable));
    if (is_given(o, variable))
        return 0;
    int rc = option->set(o, option->arg ? value : NULL, option->setting, err);
    return rc < 0 ? err_prefix(err, "%s: %s", at, name) : 0;
}

static int unknown_config(void *arg, const char *name, const char *at)
{
    (void)arg;
    fprintf(stderr, "hvdrun: %s: no setting %s, ignored\n", at, name);
    return 0;
}

int options_parse(struct options *ret, int argc, char **argv, struct err *err)
{
    char pair[64];
    *ret = (struct options){0};
    job_init(&ret->job);
    int i = 1;
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        const char *word = argv[i++], *value;
        if (strcmp(word, "--") == 0)
            break;
        const struct option *option = find_option(word, &value);
        const struct unused_option *unused = options_unused(word, strcspn(word, "="));
        if (!option && unused) {
            if (unused->takes_value && !strchr(word, '=') && i++ == argc)
                return err_set(err, EINVAL, "%s needs a value", word);
            options_unused_say(unused, word, strcspn(word, "="));
            continue;
        }
        if (!option)
            return err_set(err, EINVAL, "unknown option %s; see hvdrun --help", word);
        if (!option->arg && value)
            return err_set(err, EINVAL, "%s takes no value", option->names);
        if (option->arg && !value) {
            if (i < argc && is_value(option, argv[i]))
                value = argv[i++];
            else if (!is_optional(option))
                return err_set(err, EINVAL, "%s needs %s", word, option->arg);
            if (is_pair(option)) {
                if (i == argc)
                    return err_set(err, EINVAL, "%s needs %s", word, option->arg);
                snprintf(pair, sizeof(pair), "%s %s", value, argv[i++]);
                value = pair;
            }
        }
        int rc = option->set(ret, value, option->setting, err);
        if (rc < 0)
            return err_prefix(err, "%.*s", (int)strcspn(word, "="), word);
    }
    int rc = ret->config_file
                 ? horovod_config_read(ret->config_file, take_config, unknown_config, ret, err)
                 : 0;
    if (rc < 0)
        return rc;
    if (copy_command(&ret->job, argv + i) < 0)
        return err_set(err, ENOMEM, "no memory");
    if (argc == 3 && ret->horovod && ret->job.verbose)
        ret->what = OPTIONS_VERSION; /* horovodrun -v */
    if (ret->what == OPTIONS_RUN && !ret->job.argv && !ret->job_file)
        return err_set(err, EINVAL, "no command to run; see hvdrun --help");
    if (ret->what == OPTIONS_DOCTOR && (ret->job.argv || ret->job_file))
        return err_set(err, EINVAL, "--doctor: \"%s\": want fail, warn or off before a command",
                       ret->job.argv ? ret->job.argv[0] : ret->job_file);
    if (ret->job.argv && ret->job_file)
        return err_set(err, EINVAL, "a command (%s) and a job file (%s): want one of them",
                       ret->job.argv[0], ret->job_file);
    return 0;
}

void options_help(void)
{
    printf(
        "usage: hvdrun [option]... command [argument]...\n"
        "       hvdrun [option]... -f job.yaml\n"
        "       hvdrun list|status|scale|drain|attach ...\n"
        "\n"
        "Runs a command on many ranks, on this machine or on several, and ends when all ranks\n"
        "have ended.\n"
        "\n"
        "  hvdrun -np 4 python3 train.py                    4 ranks here\n"
        "  hvdrun -np 8 -H h1:4,h2:4 python3 train.py       on two hosts, by ssh\n"
        "  hvdrun -np 2 --output-filename out ./a.out       output into files, too\n"
        "  hvdrun -f job.yaml                               an HvdJob manifest, here\n"
        "  hvdrun --doctor -H h1,h2                         no job: tests hosts and network\n"
        "  hvdrun -np 4 --min-np 2 --max-np 8 python3 train.py\n"
        "                                                   elastic: trains on with 2 to 8 ranks\n"
        "  hvdrun status; hvdrun scale train-1 6            shows the job; trains with 6 ranks\n"
        "  hvdrun drain train-1 node3                       trains without the ranks on node3\n"
        "\n"
        "A program that has the name of a command: hvdrun -- status, or hvdrun ./status.\n"
        "\n");
    commands_help();
    printf("\noptions:\n");
    size_t count;
    const struct option *options = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        char head[96];
        int n = 0;
        for (const char *p = options[i].names; *p && n < 70; p++)
            n += snprintf(head + n, sizeof(head) - (size_t)n, *p == '|' ? ", " : "%c", *p);
        snprintf(head + n, sizeof(head) - (size_t)n, "%s%s", options[i].arg ? " " : "",
                 options[i].arg ? options[i].arg : "");
        printf("  %s%s%-*s%s\n", head, strlen(head) > 28 ? "\n  " : "",
               strlen(head) > 28 ? 30 : 30 - (int)strlen(head), "", options[i].help);
    }
    printf(
        "\n"
        "horovodrun is hvdrun --horovod. It takes Horovod's other options, too, such as --gloo "
        "and\n"
        "--autotune, and says which of them change nothing.\n"
        "\n"
        "exit code: that of the first rank that failed, 128 + n for signal n; 127: command not\n"
        "found; 126: it cannot be run; 2: wrong usage; 1: anything else that went wrong.\n"
        "\n"
        "environment: HVD_RSH_AGENT replaces ssh (called as: AGENT host command...); HVD_IFACE\n"
        "names the network interface towards the other hosts; HVD_CORE_DUMPS=1 allows core "
        "dumps;\n"
        "HVD_DOCTOR is --doctor's default; HVD_BACKEND, HVD_GPU_FALLBACK and HVD_NCCL_LIB say how\n"
        "tensors travel (hvdrun(1)).\n");
}
