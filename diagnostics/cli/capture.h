/* SPDX-License-Identifier: Apache-2.0
 *
 * capture: a machine as files: what the checks read under /proc, /sys and elsewhere, the
 * answers of the probes, the environment, all without secrets. Written into a folder (gather) or an
 * archive (bundle) it can be checked again with --root DIR.
 *
 * Between capture_start() and capture_files() the machine records each path that a check reads;
 * capture_files() reads these files once more. One thread; the capture owns its entries.
 */
#ifndef HVD_DIAGNOSTICS_CLI_CAPTURE_H
#define HVD_DIAGNOSTICS_CLI_CAPTURE_H

#include "core/base/buf.h"
#include "core/base/err.h"
#include "diagnostics/machine.h"
#include "diagnostics/report/redact.h"
#include "diagnostics/setting.h"

#define CAPTURE_MAX   (128u << 20) /* bytes in all */
#define CAPTURE_NAMES 16384        /* names of one folder */

struct captured {
    char *path; /* "root/proc/meminfo", "answers/nvml" */
    char kind;  /* 'f', 'd', 'l' */
    char *bytes;
    size_t len;
};

struct look {
    char kind;
    char *path;
};

struct capture {
    struct machine *machine;
    const struct redact *redact;
    struct look *looks;
    size_t nlooks, looks_cap;
    char **links; /* symbolic links that are kept: their paths in the captured tree; set by
                     capture_files() */
    size_t nlinks;
    struct captured
        *entries; /* after capture_files(): sorted by path, folders before their files */
    size_t n, cap;
    size_t bytes;
    bool failed; /* no memory */
};

/* Starts recording. m and redact are borrowed until capture_fini(). */
void capture_start(struct capture *c, struct machine *m, const struct redact *redact);

/* Ends recording and captures the recorded files, the answers and the options. Returns 0, -ENOMEM,
 * or -EFBIG: more than CAPTURE_MAX bytes. */
int capture_files(struct capture *c, const struct setting *s, struct err *err);

/* Adds a file; secrets in its text are redacted. Call before capture_files() or after
 * capture_sort(). */
void capture_put(struct capture *c, char kind, const char *path, const void *bytes, size_t len);

/* Adds a file whose text needs no redaction. Takes the buffer's memory and leaves the buffer
 * empty. */
void capture_add(struct capture *c, char kind, const char *path, struct buf *clean);

/* Sorts by path and keeps the entry that was added first for each path. */
void capture_sort(struct capture *c);
void capture_fini(struct capture *c);

#endif
