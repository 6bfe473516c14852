/* SPDX-License-Identifier: Apache-2.0
 *
 * commands_attach: hvdrun attach. See commands_private.h; coordinator_attach.c does the work.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "agent/commands_private.h"
#include "agent/coordinator.h"
#include "agent/saved_job.h"
#include "core/base/fd.h"

/* Finds the newest job of that name whose hvdrun is gone. */
static int find_gone(const char *name, struct job_entry *ret, struct err *err)
{
    struct jobs jobs;
    const struct job_entry *gone = NULL, *alive;
    int rc = jobs_find(&jobs, err);
    if (rc < 0)
        return rc;
    alive = jobs_get(&jobs, name);
    for (int i = 0; i < jobs.n; i++)
        if (jobs.list[i].gone && strcmp(jobs.list[i].name, name) == 0)
            gone = &jobs.list[i];
    if (alive)
        rc =
            err_set(err, EBUSY,
                    "job %s has its hvdrun (pid %d): there is nothing to take over; hvdrun status, "
                    "scale and drain speak to it",
                    name, alive->pid);
    else if (gone)
        *ret = *gone;
    jobs_fini(&jobs);
    if (rc < 0 || gone)
        return rc;
    return commands_find(name, ret, err); /* whose error lists the jobs */
}

/* Loads the saved job and checks it; free *ret with saved_job_fini(). Called again with the lock
 * held, because the state may have changed before. */
static int load(const struct job_entry *entry, struct saved_job *ret, struct err *err)
{
    saved_job_fini(ret);
    int rc = saved_job_load(ret, entry->dir, err);
    if (rc == 0)
        rc = saved_job_check_home(ret, err);
    if (rc == -ENOENT)
        return err_set(err, ENOENT,
                       "job %s cannot be taken over: it has a fixed size and ends without its "
                       "hvdrun; only jobs with --min-np or --max-np go on",
                       entry->name);
    return rc < 0 ? err_prefix(err, "job %s cannot be taken over", entry->name) : 0;
}

int command_attach(const struct command_line *line, struct err *err)
{
    struct coordinator c;
    struct job_entry entry;
    struct saved_job saved = {0};
    if (sodium_init() < 0)
        return err_set(err, EIO, "libsodium did not start");
    auto_close int lock = -1;
    int rc = find_gone(line->words[0], &entry, err);
    if (rc == 0)
        rc = load(&entry, &saved, err);
    if (rc == 0)
        rc = jobs_lock(entry.dir, &lock, err);
    if (rc == 0)
        rc = load(&entry, &saved, err);
    if (rc < 0) {
        saved_job_fini(&saved);
        return rc;
    }
    if (line->verbose && saved.job.verbose < 1)
        saved.job.verbose = 1;
    struct err failed = {0};
    rc = coordinator_attach(&c, &entry, &saved, take_fd(&lock), &failed);
    saved_job_fini(&saved);
    if (!failed.code)
        return rc;
    *err = failed;
    return err_prefix(err, "job %s", entry.name);
}
