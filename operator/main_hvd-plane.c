/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-plane: serves the agents in the pods of HvdJobs, for hvd-operator. A process of its own
 * because it parses what tenants send: it has no rights on the API server.
 */
#include <getopt.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/log.h"
#include "core/include/hvd.h"
#include "operator/coordinator/plane_service.h"
#include "operator/link/heap.h"

static const char help[] =
    "usage: hvd-plane --socket PATH [option]...\n"
    "\n"
    "Serves the agents in the pods of HvdJobs, for an hvd-operator on the same machine (or in the\n"
    "same pod), which tells it over a Unix socket which jobs and pods there are. Listens for\n"
    "agents only while that operator leads.\n"
    "\n"
    "  --socket PATH              the operator's socket (hvd-operator --plane-socket PATH)\n"
    "  --agents-addr ADDR:PORT    listen there for agents (:7443)\n"
    "  --watchdog SECONDS         exit with code 3 if the loop stands still for so long (30)\n"
    "  -v, --verbose              log each epoch of each job; twice: more\n"
    "  --version                  print the version\n"
    "  -h, --help                 this text\n";

struct settings {
    struct plane_service_config service;
    int watchdog_s, verbose;
    bool help, version;
};

static int parse(int argc, char **argv, struct settings *ret, struct err *err)
{
    enum { OPT_SOCKET = 256, OPT_AGENTS, OPT_WATCHDOG, OPT_VERSION };
    static const struct option table[] = {
        {"socket", required_argument, NULL, OPT_SOCKET},
        {"agents-addr", required_argument, NULL, OPT_AGENTS},
        {"watchdog", required_argument, NULL, OPT_WATCHDOG},
        {"verbose", no_argument, NULL, 'v'},
        {"version", no_argument, NULL, OPT_VERSION},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct settings o = {.service.address = ":7443", .watchdog_s = 30};
    int opt;
    opterr = 0;
    while ((opt = getopt_long(argc, argv, "+hv", table, NULL)) != -1) {
        o.service.socket = opt == OPT_SOCKET ? optarg : o.service.socket;
        o.service.address = opt == OPT_AGENTS ? optarg : o.service.address;
        o.watchdog_s = opt == OPT_WATCHDOG ? atoi(optarg) : o.watchdog_s;
        o.verbose += opt == 'v';
        o.version |= opt == OPT_VERSION;
        o.help |= opt == 'h';
        if (opt == '?')
            return err_set(err, EINVAL,
                           "%.60s: unknown option, or its value is missing; see --help",
                           argv[optind - 1]);
    }
    if (optind < argc)
        return err_set(err, EINVAL, "%.60s: unexpected argument; see --help", argv[optind]);
    if (o.watchdog_s < 2 || o.watchdog_s > 3600)
        return err_set(err, EINVAL, "--watchdog: want 2 to 3600 seconds");
    if (!o.help && !o.version && !o.service.socket)
        return err_set(err, EINVAL, "--socket is missing; see --help");
    *ret = o;
    return 0;
}

struct program {
    struct loop loop;
    struct loop_fd signals;
    struct loop_timer trimming, watching;
    int watchdog_s;
    struct plane_service *service;
};

/* The container's restart helps if an input has made the loop stand still. A handler, because the
 * kernel ignores a default action in a container's first process. */
static void on_alarm(int signal)
{
    static const char text[] = "hvd-plane: error: its loop has stood still for too long\n";
    (void)signal;
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);
    (void)n;
    _exit(3);
}

static void on_watching(void *arg)
{
    struct program *p = arg;
    alarm((unsigned)p->watchdog_s);
    loop_timer_start(&p->loop, &p->watching, 1000, on_watching, p);
}

static void on_signal(void *arg, uint32_t events)
{
    struct program *p = arg;
    (void)events;
    if (loop_signal_next(&p->signals) != 0)
        loop_stop(&p->loop);
}

static int run(const struct settings *settings, struct err *err)
{
    struct program p = {.watchdog_s = settings->watchdog_s};
    struct plane_service_config config = settings->service;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGALRM, on_alarm);
    heap_bound();
    int rc = sodium_init() < 0 ? -ENOSYS : loop_init(&p.loop);
    if (rc < 0)
        return err_sys(err, -rc, "libsodium or epoll");
    config.loop = &p.loop;
    rc = loop_signals_start(&p.loop, &p.signals, &set, on_signal, &p);
    rc = rc < 0 ? err_sys(err, -rc, "signals") : plane_service_open(&p.service, &config, err);
    heap_trim(&p.loop, &p.trimming);
    on_watching(&p);
    if (rc == 0 && (rc = loop_run(&p.loop)) < 0)
        err_sys(err, -rc, "epoll");
    plane_service_close(p.service);
    loop_timer_stop(&p.loop, &p.trimming);
    loop_timer_stop(&p.loop, &p.watching);
    loop_fd_stop(&p.loop, &p.signals);
    loop_fini(&p.loop);
    return rc;
}

int main(int argc, char **argv)
{
    struct settings settings = {0};
    struct err err = {0};
    log_set_tag("hvd-plane");
    if (parse(argc, argv, &settings, &err) < 0) {
        fprintf(stderr, "hvd-plane: %s\n", err_text(&err));
        return 2;
    }
    if (settings.help) {
        fputs(help, stdout);
        return 0;
    }
    if (settings.version) {
        puts("hvd-plane " HVD_VERSION);
        return 0;
    }
    if (settings.verbose)
        log_set_level(settings.verbose > 1 ? LOG_DEBUG : LOG_INFO);
    if (run(&settings, &err) < 0) {
        log_error("%s", err_text(&err));
        return 1;
    }
    return 0;
}
