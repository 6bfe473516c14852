/* SPDX-License-Identifier: Apache-2.0
 *
 * machine: all that a check may look at: files under a root, answers of probes, the environment.
 *
 * The root is "/" on a live machine and a folder of captured files in a replay; a check cannot tell
 * the difference. Paths have no leading slash: "proc/meminfo". Only files that answer at once are
 * read here (/proc, /sys, /etc, /run, /dev names); whatever may hang, needs a call other than open,
 * read, readdir and readlink, or touches foreign libraries is a probe (probe.h). Nothing is
 * written. One thread. While machine->record is set, each read is reported to it, for `hvd-doctor
 * gather`.
 */
#ifndef HVD_DIAGNOSTICS_MACHINE_H
#define HVD_DIAGNOSTICS_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "diagnostics/answer.h"

#define MACHINE_FILE_MAX (1u << 20) /* longer files are cut there */

struct machine_answer {
    char *probe; /* name of the probe; owned */
    struct answer answer;
};

/* Called each time a check reads a path. kind: 'f' file, 'd' folder, 'l' link, 'e' only
 * tested whether it exists. */
typedef void machine_record_f(void *arg, char kind, const char *path);

struct machine {
    int root;           /* O_PATH descriptor, owned */
    bool live;          /* the running machine: probes may be run */
    char *environ_text; /* as /proc/self/environ; owned */
    size_t environ_len;
    struct machine_answer *answers;
    size_t nanswers;
    machine_record_f *record;
    void *record_arg;
};

/* The running machine. */
int machine_open_live(struct machine *m, struct err *err);

/* A captured one: DIR/root/..., DIR/answers/NAME. */
int machine_open_captured(struct machine *m, const char *dir, struct err *err);
void machine_close(struct machine *m);

/* Reads a whole file into a NUL-terminated string, which the caller frees. -ENOENT, -EACCES ...
 * ret_len (without the NUL) may be NULL. */
int machine_read(const struct machine *m, const char *path, char **ret, size_t *ret_len);

/* Reads the first line, without newline and surrounding blanks, into dst; on -errno dst is
 * empty. */
int machine_line(const struct machine *m, char *dst, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Reads a file that holds one decimal integer ("max" is INT64_MAX); -EINVAL when it does not. */
int machine_int(const struct machine *m, int64_t *ret, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads the value of "key: value" or "key value" in a file of such lines (/proc/meminfo, status,
 * memory.events). A unit after the number stays in the value. -ENOENT: no such file or key. */
int machine_field(const struct machine *m, const char *path, const char *key, char *dst,
                  size_t size);
int machine_field_int(const struct machine *m, const char *path, const char *key, int64_t *ret);

/* Lists the names in a folder, sorted, without . and .. . *ret ends with NULL; one free()
 * releases it all. */
int machine_list(const struct machine *m, const char *path, char ***ret, size_t *ret_n);
bool machine_exists(const struct machine *m, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
int machine_readlink(const struct machine *m, const char *path, char *dst, size_t size);

/* A variable of the process's environment; NULL when unset. Owned by the machine. */
const char *machine_env(const struct machine *m, const char *name);
/* Walks the environment: the i-th "NAME=value", NULL at the end. */
const char *machine_env_at(const struct machine *m, size_t i);

/* The answer of a probe. Never NULL: ANSWER_ABSENT if the probe was not run. */
const struct answer *machine_answer(const struct machine *m, const char *probe);

#endif
