/* SPDX-License-Identifier: Apache-2.0
 *
 * hvdrun: runs a command on many ranks (coordinator.c). If the first word is a command of
 * commands.c, sends it to a running job.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/checkbuild.h"
#include "agent/commands.h"
#include "agent/coordinator.h"
#include "agent/discovery.h"
#include "agent/horovod.h"
#include "agent/jobfile.h"
#include "agent/options.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/include/hvd.h"
#include "core/member/rank_end.h"
#include "core/member/rank_state.h"

static int explain_states(void)
{
    size_t n;
    const struct rank_row *rows = rank_rows(&n);
    printf("%-10s %-12s %-10s %s\n", "state", "event", "next", "action");
    for (size_t i = 0; i < n; i++)
        printf("%-10s %-12s %-10s %s\n", rank_state_name(rows[i].state),
               rank_event_name(rows[i].event), rank_state_name(rows[i].next),
               rank_action_name(rows[i].action));
    const struct end_row *ends = rank_end_rows(&n);
    printf("\n%-8s %-18s %-20s %s\n", "job", "ends by", "when", "what it means");
    for (size_t i = 0; i < n; i++)
        printf("%-8s %-18s %-20s %s\n", end_job_name(ends[i].job), end_way_name(ends[i].way),
               end_time_name(ends[i].time), rank_end_name(ends[i].end));
    return 0;
}

static int count_slots(const struct hosts *hosts)
{
    int n = 0;
    for (int i = 0; i < hosts->n; i++)
        n += hosts->list[i].slots;
    return n;
}

/* Asks the discovery script for hosts until there are enough slots to start. A failure of the first
 * run is an error; later failures are retried. */
static int discover(struct job *job, struct err *err)
{
    int want = job->min_np ? job->min_np : job->np ? job->np : 1, have = 0;
    int slots = job->slots_per_host ? job->slots_per_host : 1;
    if (job->hosts.n > 0)
        return err_set(err, EINVAL, "hosts and --host-discovery-script: want one of them");
    int rc = options_elastic_timeout(job, err);
    uint64_t deadline = deadline_in_ms((uint64_t)job->elastic_timeout * 1000);
    for (bool first = true; rc == 0; first = false) {
        rc = discovery_first(job->discovery_script, slots, &job->hosts, err);
        have = count_slots(&job->hosts);
        if (rc == 0 && have >= want)
            return 0;
        if (rc < 0 && first)
            return rc;
        if (first)
            fprintf(stderr, "hvdrun: waiting for hosts: %s names %d slots, %d are wanted\n",
                    job->discovery_script, have, want);
        rc = 0;
        if (deadline_passed(deadline))
            return err_set(err, ETIMEDOUT,
                           "%s names %d slots after %d s (--elastic-timeout), %d are wanted",
                           job->discovery_script, have, job->elastic_timeout, want);
        sleep(1);
    }
    return rc;
}

static int prepare(struct options *options, struct err *err)
{
    struct job *job = &options->job;
    char ignored[512];
    int rc = 0;
    if (options->job_file) {
        rc = jobfile_read(job, options->job_file, ignored, sizeof(ignored), err);
        if (rc == 0 && ignored[0])
            fprintf(stderr, "hvdrun: %s: for a cluster, ignored here: %s\n", options->job_file,
                    ignored);
    }
    if (rc == 0)
        rc = options_check_settings(job, err);
    if (rc == 0)
        rc = options_start_timeout(job, err);
    if (rc == 0)
        rc = options_doctor(job, err);
    if (rc == 0)
        rc = options_check_sizes(job, err);
    if (rc == 0 && job->discovery_script)
        rc = discover(job, err);
    if (rc == 0)
        rc = options_elastic(job, err);
    if (rc == 0)
        rc = job->elastic ? hosts_assign_elastic(&job->hosts, job->np, job->max_np, err)
                          : hosts_assign(&job->hosts, job->np, err);
    if (rc == 0 && !job->cwd) {
        job->cwd = getcwd(NULL, 0);
        rc = job->cwd ? 0 : err_sys(err, errno, "the current directory");
    }
    return rc;
}

/* Makes the job that tests the hosts together: one rank of hvd-doctor on each host. */
static int prepare_doctor(struct options *options, struct err *err)
{
    struct job *job = &options->job;
    const char *const words[] = {"hvd-doctor", "workers"};
    int rc = prepare(options, err);
    for (int i = 0; i < job->hosts.n; i++)
        job->hosts.list[i].nranks = 1;
    job->argv = calloc(3, sizeof(*job->argv));
    for (int i = 0; job->argv && i < 2; i++)
        job->argv[i] = strdup(words[i]);
    if (rc == 0 && (!job->argv || !job->argv[0] || !job->argv[1]))
        rc = err_set(err, ENOMEM, "no memory");
    job->doctor = DOCTOR_OFF; /* this job checks the hosts itself */
    job->no_prefix = true;
    job->reports = true;
    return rc;
}

static int run(struct options *options, struct err *err)
{
    struct coordinator c;
    int rc = options->what == OPTIONS_DOCTOR ? prepare_doctor(options, err) : prepare(options, err);
    if (rc < 0)
        return 2;
    options_warn_of_names(&options->job);
    return coordinator_run(&c, &options->job, err);
}

/* Opens closed standard descriptors, so that no socket gets a number below 3 and receives output.
 */
static void fill_standard(void)
{
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        continue;
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    struct options options;
    struct err err = {0};
    int code = 2;
    fill_standard();
    log_set_tag("hvdrun");
    if (sodium_init() < 0) {
        log_error("libsodium did not start");
        return 1;
    }
    if (argc > 1 && commands_is(argv[1]))
        return commands_run(argc - 1, argv + 1);
    if (options_parse(&options, argc, argv, &err) == 0) {
        switch (options.what) {
        case OPTIONS_HELP:
            options_help();
            code = 0;
            break;
        case OPTIONS_VERSION:
            printf("hvdrun %s\n", HVD_VERSION);
            if (options.horovod)
                printf("horovod " HOROVOD_VERSION " (its interface)\n");
            code = 0;
            break;
        case OPTIONS_EXPLAIN_STATES:
            code = explain_states();
            break;
        case OPTIONS_CHECK_BUILD:
            checkbuild_print(options.horovod);
            code = 0;
            break;
        case OPTIONS_DOCTOR:
        case OPTIONS_RUN:
            code = run(&options, &err);
            break;
        }
    }
    if (err.code)
        fprintf(stderr, "hvdrun: %s\n", err_text(&err));
    job_fini(&options.job);
    return code;
}
