/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs: the jobs of this user on this machine. Each hvdrun has a private directory (hvdrun-XXXXXX)
 * with its socket, its token and a file "job" that tells the name; nothing else keeps a list of
 * them. Used by hvdrun at its start and by its commands (list, status, ...).
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
    int pid;         /* of hvdrun */
    int64_t started; /* ms since 1970 */
    char command[JOBS_COMMAND_MAX];
    bool gone; /* its hvdrun does not listen any more */
};

struct jobs {
    struct job_entry *list; /* by start, the first first */
    int n;
    int others; /* directories that belong to other users */
};

/* The first place where a private directory can be made, lent: HVD_RUN_DIR alone where that is set,
 * else XDG_RUNTIME_DIR, TMPDIR, /tmp, /dev/shm (in a container whose root is read-only it may be
 * all there is). NULL: none. */
const char *jobs_base(void);

/* All of them, those that are gone too, in every place they may be. Directories without the file
 * "job" are none. ret goes to jobs_fini(). -ENOMEM. */
int jobs_find(struct jobs *ret, struct err *err);
void jobs_fini(struct jobs *jobs);

/* The one of that name that is not gone; NULL. */
const struct job_entry *jobs_get(const struct jobs *jobs, const char *name);

/* The file's text; everything but dir and gone. Pure. */
int jobs_entry_read(const char *text, size_t len, struct job_entry *ret, struct err *err);

/* The program's name without folder and ending; of an interpreter's script the script's. Only
 * letters, digits, dots, - and _ stay. Pure. */
void jobs_program(char *const *argv, char *dst, size_t size);

/* Fills entry->name: said, which must be free (-EEXIST), or the program's name and the first number
 * that is (train-1). Until *ret_lock is closed no other hvdrun of this base takes it; -1: there is
 * no lock to be had, and two that start at the same moment may get the same. */
int jobs_claim(struct job_entry *entry, const char *base, const char *said, char *const *argv,
               int *ret_lock, struct err *err);

/* Writes the file into entry->dir, at once and whole. */
int jobs_publish(const struct job_entry *entry, struct err *err);

/* A job's directory, for the one hvdrun that has the job: as long as *ret is open. -EBUSY: another
 * one has it. */
int jobs_lock(const char *dir, int *ret, struct err *err);

/* Removes the directory of an hvdrun, with its socket, token and file. */
void jobs_remove(const char *dir);

/* A private directory's file name into dst. */
void jobs_path(char *dst, size_t size, const char *dir, const char *file);

#endif
