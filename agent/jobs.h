/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: the jobs of this user on this machine. Each hvdrun has a private directory (hvdrun-XXXXXX)
 * with its socket, its token and a file "job" with its name; there is no other list. Used by hvdrun
 * at its start and by its commands (list, status, ...).
 */
#ifndef HVD_AGENT_JOBS_H
#define HVD_AGENT_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/member/protocol.h"

#define JOBS_DIR_MAX     256
#define JOBS_COMMAND_MAX 512

struct job_entry {
    char dir[JOBS_DIR_MAX];
    char name[MEMBER_NAME_MAX];
    int pid;         /* pid of the job's hvdrun */
    int64_t started; /* ms since 1970 */
    char command[JOBS_COMMAND_MAX];
    bool gone; /* the job's hvdrun no longer listens */
};

struct jobs {
    struct job_entry *list; /* oldest first */
    int n;
    int others; /* number of private directories that belong to other users */
};

/* The first directory where a private directory can be made (lent): only HVD_RUN_DIR if set, else
 * XDG_RUNTIME_DIR, TMPDIR, /tmp, /dev/shm (the only one in some containers with a read-only root).
 * NULL: none. */
const char *jobs_base(void);

/* Lists all jobs, also those whose hvdrun is gone, in all directories that jobs_base() tries, and
 * in /run/user/UID. Skips private directories without the file "job". Free *ret with jobs_fini().
 * -ENOMEM. */
int jobs_find(struct jobs *ret, struct err *err);
void jobs_fini(struct jobs *jobs);

/* Returns the job of that name whose hvdrun listens; NULL: none. */
const struct job_entry *jobs_get(const struct jobs *jobs, const char *name);

/* Parses the file "job"; fills all but dir and gone. Pure. */
int jobs_entry_read(const char *text, size_t len, struct job_entry *ret, struct err *err);

/* Writes the program's name without folder and extension; for an interpreter, that of its script.
 * Other characters than letters, digits, dots, - and _ are replaced. Pure. */
void jobs_program(char *const *argv, char *dst, size_t size);

/* Fills entry->name: with said, which must not be in use (-EEXIST), or with the program's name and
 * the first free number (train-1). While *ret_lock is open, no other hvdrun with this base can
 * claim a name. *ret_lock -1: the lock is not available, and two hvdruns that start at the same
 * moment may get the same name. */
int jobs_claim(struct job_entry *entry, const char *base, const char *said, char *const *argv,
               int *ret_lock, struct err *err);

/* Writes the file "job" in entry->dir, atomically. */
int jobs_publish(const struct job_entry *entry, struct err *err);

/* Locks a job's directory for the one hvdrun that coordinates the job, until *ret is closed.
 * -EBUSY: another hvdrun has the lock. */
int jobs_lock(const char *dir, int *ret, struct err *err);

/* Removes an hvdrun's directory with its socket, token and files. */
void jobs_remove(const char *dir);

/* Writes the path of a file in a private directory. */
void jobs_path(char *dst, size_t size, const char *dir, const char *file);

#endif
