/* SPDX-License-Identifier: Apache-2.0
 *
 * check: one thing that can be right or wrong with a machine for a job.
 *
 * A check is a row of a const table (checks/<group>.c) and a pure function of what machine.h shows,
 * the setting and the version rules: no I/O of its own, no state, so that a captured machine gives
 * the same result as the real one. It calls exactly one of result_pass() ... result_error().
 *
 * Status: pass; info (worth knowing); warn (slower, or wrong in some cases); fail (the job will not
 * work); skip (does not apply, or could not look: the summary says why and what would allow it);
 * error (the check itself failed).
 */
#ifndef HVD_DIAGNOSTICS_CHECK_H
#define HVD_DIAGNOSTICS_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/machine.h"
#include "diagnostics/setting.h"

enum check_status { CHECK_PASS, CHECK_INFO, CHECK_WARN, CHECK_FAIL, CHECK_SKIP, CHECK_ERROR };

/* Codes: HVD1nnn host, 2 limits, 3 memory, 4 cpu, 5 gpu, 6 nccl, 7 mpi, 8 network, 9 all later
 * groups. */
enum check_group {
    GROUP_HOST,
    GROUP_LIMITS,
    GROUP_MEMORY,
    GROUP_CPU,
    GROUP_GPU,
    GROUP_NCCL,
    GROUP_MPI,
    GROUP_NETWORK,
    GROUP_STORAGE,
    GROUP_KUBERNETES,
    GROUP_FRAMEWORK,
    GROUP_WORKERS,
    GROUP_ACTIVE,
    GROUPS,
};

/* What a program that acts on findings has to do. */
enum check_action {
    ACTION_NONE,
    ACTION_CONTAINER_OPTION, /* start the container or pod with another option */
    ACTION_ENVIRONMENT,      /* set or unset a variable */
    ACTION_INSTALL,          /* a package is missing */
    ACTION_VERSION,          /* another version of a package */
    ACTION_REMOVE,           /* a duplicate copy of a library */
    ACTION_RECREATE,         /* remove the container and create it again, unchanged */
    ACTION_FREE_SPACE,       /* disk, memory, shared memory, processes */
    ACTION_NETWORK,          /* addresses, names, firewall, cabling */
    ACTION_HOST,             /* a setting of the host: sysctl, BIOS, driver, service */
    ACTION_RESET_GPU,
    ACTION_REBOOT,
    ACTION_REPLACE_NODE,
    ACTION_PERMISSION, /* a capability, a role, a file mode */
    ACTION_JOB,        /* other numbers of ranks, GPUs, threads */
    ACTIONS,
};

enum fix_place { FIX_DOCKER, FIX_K8S, FIX_HOST, FIX_PLACES };

#define CHECK_PROBES 4
#define CHECK_REFS   3

struct result;
struct rules;

struct view {
    const struct machine *machine;
    const struct setting *setting;
    const struct rules *rules;
};

typedef void check_f(const struct view *v, struct result *r);

struct check {
    const char *id;   /* shm-size */
    const char *code; /* HVD3001; never used again for another check */
    enum check_group group;
    int level;
    unsigned profiles; /* profiles in which the check runs; 0: all. In others it is skipped */
    const char *needs; /* what the check needs to look, for people: "CAP_SYSLOG", "an NVIDIA
                          driver"; NULL: nothing */
    const char *probes[CHECK_PROBES]; /* answers that the check reads */
    check_f *run;
    const char *title;           /* "size of /dev/shm": fewer than eight words */
    const char *why;             /* what happens to a job where this is wrong */
    const char *fix[FIX_PLACES]; /* what to type; NULL: nothing can be done in that place */
    enum check_action action;    /* what to do when the check warns or fails */
    const char *explain; /* for `hvd-doctor explain`: how the check looks, its thresholds and where
                            they come from */
    const char *refs[CHECK_REFS];
};

struct check_table {
    const struct check *checks;
    size_t n;
};

#define RESULT_TEXT 512

struct result {
    const struct check *check;
    enum check_status status;
    char summary[RESULT_TEXT];         /* one line with the figures: "/dev/shm has 64 MiB" */
    char observed[256];                /* short and comparable: "67108864" */
    char expected[256];                /* ">= 1073741824" */
    char why[RESULT_TEXT];             /* empty: the check's own text applies */
    char fix[FIX_PLACES][RESULT_TEXT]; /* empty: the check's own text applies */
    enum check_action action;
    bool silenced; /* by --silence: shown, but not counted */
    char silence_reason[128];
    uint32_t us; /* time of the check alone; the probes' times are in their answers */
};

/* Each sets the status and the one-line summary. The summary of a skip says what would allow the
 * check. */
void result_pass(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_info(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_warn(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_fail(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_skip(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_error(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Details, before or after the status. */
void result_observed(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_expected(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_why(struct result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void result_fix(struct result *r, enum fix_place place, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void result_action(struct result *r, enum check_action action);

/* Returns true when the probe has answered. Otherwise sets the result and returns false: a
 * time-out or crash of the probe is a warning, "not run" and "failed" are a skip. */
bool result_needs(struct result *r, const struct answer *a, const char *what);

/* Makes untrusted text printable, in place: one line of UTF-8 without control characters. The
 * result_ functions apply it to their texts. */
void check_clean(char *text);

/* Appends to a string of a result, with sep in front unless the string is empty. Text that does
 * not fit is replaced by "..." once, and later calls append nothing. If the string is empty, the
 * text is cut to fit instead. */
void check_append(char *dst, size_t size, const char *sep, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Writes "64 MiB" or "1.5 GiB", for summaries: at most one decimal. Returns dst. */
char *check_bytes(char *dst, size_t size, uint64_t bytes);

const char *check_status_name(enum check_status status); /* "pass" */
const char *check_group_name(enum check_group group);    /* "limits" */
const char *check_action_name(enum check_action action); /* "container-option" */
const char *fix_place_name(enum fix_place place);        /* "docker" */

/* Which fix fits the machine: a pod's, a container's, or the host's where the machine is neither.
 */
enum fix_place fix_place_of(const struct machine *m);

#endif
