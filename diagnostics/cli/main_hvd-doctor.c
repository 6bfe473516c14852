/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-doctor: finds what is wrong with a machine before a job fails on it. Each command is in a
 * file of its own; this file has the standard descriptors, the help text and the error line.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/include/hvd.h"
#include "diagnostics/cli/cli.h"

/* Opens /dev/null for closed descriptors below 3: otherwise the next opened file would get that
 * number, and output would be written into it. Opened read-only, so that writing a report there
 * fails. */
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
    printf(
        "usage: hvd-doctor [command] [option]... [argument]...\n"
        "\n"
        "Checks whether this machine, container or pod is ready for a training job, and says what\n"
        "to type if it is not. It changes nothing.\n"
        "\n"
        "  hvd-doctor                                    this machine, for a job of any kind\n"
        "  hvd-doctor --profile gpu --local-ranks 8      for 8 ranks on GPUs\n"
        "  hvd-doctor --only shm-size,nccl --strict      some checks; a warning fails\n"
        "  hvd-doctor explain shm-size                   what a check reads, and why it matters\n"
        "  hvd-doctor match train.log                    why did the run fail?\n"
        "  hvd-doctor --json >a.json; hvd-doctor diff a.json b.json\n"
        "  hvd-doctor bundle --log train.log             a tar archive for a bug report\n"
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
        "the report could not be written; 3: no check gave a result. match: 1: a cause or an\n"
        "effect was found, 3: a failure without a known cause. diff: 1: they differ.\n");
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
    /* With SIGPIPE ignored a write fails with EPIPE, and temporary files can be removed before
     * the exit. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    int rc = cli_parse(&cli, argc, argv, &err);
    if (rc == 0)
        rc = run(&cli, &err);
    if (rc < 0) {
        check_clean(err.msg); /* error messages quote file names, which may hold any bytes */
        fprintf(stderr, "hvd-doctor: %s\n", err_text(&err));
        rc = CLI_USAGE;
    }
    cli_fini(&cli);
    return rc;
}
