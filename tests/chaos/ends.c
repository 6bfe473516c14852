/* SPDX-License-Identifier: Apache-2.0
 *
 * ends: see ends.h.
 */
#include "tests/chaos/ends.h"

#include <dirent.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/chaos/plan.h"

static int record_fd;

static void on_early_end(int signo)
{
    static const char line[] = "{\"t\": \"left\", \"ms\": 0, \"step\": 0}\n";
    signal(signo, SIG_DFL);
    if (write(record_fd, line, sizeof(line) - 1) > 0)
        raise(signo);
}

void ends_note_early(const struct record *record)
{
    record_fd = record->fd;
    signal(SIGTERM, on_early_end);
}

void ends_doom(struct record *record, const char *dir, uint64_t *random, uint64_t step, int first)
{
    static const uint64_t within_us[] = {1, 100, 1000, 5000, 20000};
    char path[4096];
    snprintf(path, sizeof(path), "%s/doom", dir);
    if (unlink(path) < 0)
        return;
    uint64_t us = plan_random(random) % within_us[plan_random(random) % 5];
    record_line(record, "doom", "\"step\": %" PRIu64 ", \"op\": %d, \"us\": %" PRIu64, step, first,
                us);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {.it_value = {0, (long)us * 1000}};
    timer_t timer;
    if (us == 0 || timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 ||
        timer_settime(timer, 0, &when, NULL) < 0)
        raise(SIGKILL);
}

void ends_arm(const char *dir, char **argv)
{
    char path[4096];
    if (getenv("HVD_TEST_FAIL"))
        return;
    snprintf(path, sizeof(path), "%s/inject", dir);
    DIR *d = opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        if (e->d_name[0] == '.' || unlinkat(dirfd(d), e->d_name, 0) < 0)
            continue;
        e->d_name[strcspn(e->d_name, ".")] = '\0';
        setenv("HVD_TEST_FAIL", e->d_name, 1);
        execv("/proc/self/exe", argv);
        break;
    }
    if (d)
        closedir(d);
}
