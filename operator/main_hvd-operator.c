/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd-operator: runs HvdJobs on a Kubernetes cluster.
 */
#include <sodium.h>
#include <stdio.h>

#include "core/base/log.h"
#include "core/include/hvd.h"
#include "operator/api/watch.h"
#include "operator/operator.h"
#include "operator/reconcile/phases.h"

static void explain_states(void)
{
    size_t n;
    const struct phase_row *rows = phase_rows(&n);
    printf("%-11s %-9s %-11s %-10s %s\n", "phase", "event", "next", "action", "when");
    for (size_t i = 0; i < n; i++)
        printf("%-11s %-9s %-11s %-10s %s\n", job_phase_name(rows[i].phase),
               job_event_name(rows[i].event), job_phase_name(rows[i].next),
               job_action_name(rows[i].action), job_event_text(rows[i].event));
    const struct watch_row *watch = watch_table(&n);
    printf("\n%-12s %-12s %-12s %s\n", "cache", "event", "next", "action");
    for (size_t i = 0; i < n; i++)
        printf("%-12s %-12s %-12s %s\n", watch_state_name(watch[i].state),
               watch_event_name(watch[i].event), watch_state_name(watch[i].next),
               watch_action_name(watch[i].action));
}

static int run(const struct settings *settings)
{
    struct err err = {0};
    if (settings->verbose)
        log_set_level(settings->verbose > 1 ? LOG_DEBUG : LOG_INFO);
    if (sodium_init() < 0) {
        log_error("libsodium did not start");
        return 1;
    }
    if (operator_run(settings, &err) < 0) {
        log_error("%s", err_text(&err));
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct settings settings;
    enum settings_what what;
    struct err err = {0};
    log_set_tag("hvd-operator");
    if (settings_parse(argc, argv, &settings, &what, &err) < 0) {
        fprintf(stderr, "hvd-operator: %s\n", err_text(&err));
        return 2;
    }
    switch (what) {
    case SETTINGS_HELP:
        fputs(settings_help(), stdout);
        return 0;
    case SETTINGS_VERSION:
        puts("hvd-operator " HVD_VERSION);
        return 0;
    case SETTINGS_STATES:
        explain_states();
        return 0;
    case SETTINGS_RUN:
        break;
    }
    return run(&settings);
}
