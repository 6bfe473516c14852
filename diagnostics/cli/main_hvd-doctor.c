/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-doctor: says what is wrong with a machine before the job does. Commands are in files of their
 * own; here are the standard descriptors, help and the one line that says what went wrong.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/include/hvd.h"
#include "diagnostics/cli/cli.h"

/* A descriptor below 3 that is closed would be given to a file, and written to. Opened for reading,
 * so that a report into it is an error. */
static void fill_standard(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

static void put_option(const char *names, const char *arg, const char *help)
{
    char head[64];
    size_t n = 0;
    for (const char *p = names; *p && n + 3 < sizeof(head); p++)
        n += (size_t)snprintf(head + n, sizeof(head) - n, *p == '|' ? ", " : "%c", *p);
    snprintf(head + n, sizeof(head) - n, "%s%s", arg ? " " : "", arg ? arg : "");
    printf("  %-28s %s\n", head, help);
}

static void put_options(unsigned commands)
{
    const char *names, *arg, *help;
    unsigned bits;
    printf("\noptions:\n");
    for (size_t i = 0; cli_option_at(i, &names, &arg, &help, &bits); i++) {
        if (bits & commands)
            put_option(names, arg, help);
    }
}

static void help_all(void)
{
    const struct cli_command *c;
    printf("usage: hvd-doctor [command] [option]... [argument]...\n"
           "\n"
           "Says whether this machine, container or pod fits a training job, and what to type if\n"
           "not. It changes nothing.\n"
           "\n"
           "  hvd-doctor                                    this machine, for a job of any kind\n"
           "  hvd-doctor --profile gpu --local-ranks 8      for 8 ranks on GPUs\n"
           "  hvd-doctor --only shm-size,nccl --strict      some checks; a warning fails\n"
           "  hvd-doctor explain shm-size                   what a check is about\n"
           "  hvd-doctor match train.log                    why did the run fail?\n"
           "  hvd-doctor --json >a.json; hvd-doctor diff a.json b.json\n"
           "  hvd-doctor bundle --log train.log             a tar for whoever helps\n"
           "\n"
           "commands:\n");
    for (size_t i = 0; (c = cli_command_at(i)); i++)
        put_option(c->name, c->args, c->help);
    put_options(CLI_CHECK);
    printf(
        "\n"
        "hvd-doctor COMMAND --help lists a command's own options.\n"
        "\n"
        "exit code: 0: no failure; 1: a failure, or a warning with --strict; 2: wrong usage, or\n"
        "the report could not be written; 3: nothing could be determined. match: 1: a cause was\n"
        "found, 3: a failure that nothing explains. diff: 1: they differ.\n");
}

static void help(const struct cli *cli)
{
    const struct cli_command *c = cli_command_of(cli->command);
    if (!cli->named) {
        help_all();
        return;
    }
    printf("usage: hvd-doctor %s [option]...%s%s\n\n%s\n", c->name, c->args ? " " : "",
           c->args ? c->args : "", c->help);
    put_options(c->bit);
}

static int run(const struct cli *cli, struct err *err)
{
    if (cli->help)
        help(cli);
    else if (cli->version)
        printf("hvd-doctor %s\n", HVD_VERSION);
    else
        return cli_command_of(cli->command)->run(cli, err);
    if (fflush(stdout) != 0 && errno != EPIPE)
        return err_sys(err, errno, "standard output");
    return CLI_GOOD;
}

int main(int argc, char **argv)
{
    static struct cli cli;
    struct err err = {0};
    fill_standard();
    /* An errno says the same, and leaves time to put away what was begun. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    int rc = cli_parse(&cli, argc, argv, &err);
    if (rc == 0)
        rc = run(&cli, &err);
    if (rc < 0) {
        check_clean(err.msg); /* names of files may hold anything */
        fprintf(stderr, "hvd-doctor: %s\n", err_text(&err));
        rc = CLI_USAGE;
    }
    cli_fini(&cli);
    return rc;
}
