/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-agent: one per host; hvdrun starts it, here or over ssh, with its configuration on standard
 * input. Writes the ranks' output to standard output in frames (frames.h). In a pod: "hvd-agent
 * pod" is configured by the environment, and writes the ranks' output unchanged.
 */
#include <fcntl.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/keeper.h"
#include "agent/podconfig.h"
#include "agent/termination.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/include/hvd.h"

#define CONFIG_MAX    (16u << 20)
#define CONFIG_WAIT_S 30
#define POD_FAILED    125

static const char usage[] =
    "usage: hvd-agent < configuration\n"
    "       hvd-agent pod -- COMMAND [ARGUMENT...]\n"
    "\n"
    "Starts and watches the ranks of one host. hvdrun runs it. The agent reads its configuration\n"
    "(JSON) from standard input and writes what its ranks print to standard output, in frames.\n"
    "In a pod of an HvdJob the configuration is in the environment (hvd-agent(1)), what ranks\n"
    "print goes to the agent's own streams, and the agent ends with the exit code of the first\n"
    "rank that failed.\n"
    "\n"
    "  --help      this text\n"
    "  --version   the version\n";

/* Reads standard input to its end, within CONFIG_WAIT_S. */
static int read_input(struct buf *dst, struct err *err)
{
    uint64_t deadline = deadline_in_ms(CONFIG_WAIT_S * 1000);
    for (;;) {
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        if (poll(&p, 1, deadline_poll_ms(deadline)) == 0)
            return err_set(err, ETIMEDOUT, "no configuration on standard input within %d s",
                           CONFIG_WAIT_S);
        uint8_t *room = buf_reserve(dst, 65536);
        if (!room || dst->len > CONFIG_MAX)
            return err_set(err, EFBIG, "the configuration on standard input is too long");
        ssize_t got = read(STDIN_FILENO, room, 65536);
        if (got < 0 && errno != EINTR)
            return err_sys(err, errno, "standard input");
        if (got == 0)
            return 0;
        dst->len += got > 0 ? (size_t)got : 0;
    }
}

static int read_config(struct agent_config *ret, struct err *err)
{
    struct buf text = {0};
    int rc = read_input(&text, err);
    if (rc == 0)
        rc = config_read((const char *)text.data, text.len, ret, err);
    if (text.data)
        sodium_memzero(text.data, text.len);
    buf_fini(&text);
    return rc;
}

int main(int argc, char **argv)
{
    struct agent_config config;
    struct agent agent;
    struct err err = {0};
    bool pod = argc > 1 && strcmp(argv[1], "pod") == 0;
    if (argc > 1 && !pod) {
        bool help = strcmp(argv[1], "--help") == 0, version = strcmp(argv[1], "--version") == 0;
        fputs(help ? usage : version ? "hvd-agent " HVD_VERSION "\n" : "", stdout);
        if (!help && !version)
            fprintf(stderr, "hvd-agent: unknown argument \"%s\"; see --help\n", argv[1]);
        return help || version ? 0 : 2;
    }
    log_set_tag("hvd-agent");
    if (sodium_init() < 0) {
        log_error("libsodium did not start");
        return 1;
    }
    auto_free char *termination = pod ? termination_path() : NULL;
    enum agent_end end = AGENT_END_SETTING;
    char **command = argv + 2;
    if (pod && argc > 2 && strcmp(argv[2], "--") == 0)
        command++;
    int rc = pod ? podconfig_read(command, &config, &err) : read_config(&config, &err);
    if (rc == 0) {
        char tag[MEMBER_NAME_MAX + 16];
        snprintf(tag, sizeof(tag), "hvd-agent[%s]", config.host);
        log_set_tag(tag);
        if (config.verbose)
            log_set_level(config.verbose > 1 ? LOG_DEBUG : LOG_INFO);
        if (!pod) /* in a pod the kernel ends all processes of the container */
            rc = keeper_fork(config.unix_path != NULL, &err);
    }
    if (rc == 0) {
        rc = agent_run(&agent, &config, &err);
        end = agent.end;
    } else if (rc == -ENOMEM) {
        end = AGENT_END_INTERNAL;
    }
    if (rc < 0)
        log_error("%s", err_text(&err));
    if (rc < 0 && termination)
        termination_write(termination, end, err_text(&err));
    return rc >= 0 ? rc : pod ? POD_FAILED : 1;
}
