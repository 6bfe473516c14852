/* SPDX-License-Identifier: Apache-2.0
 *
 * proc: reads /proc/self for checks: limits, capabilities, namespaces, lists of processors; and
 * whether this is a container.
 *
 * The *_parse functions take untrusted text and are fuzzed. Checks and the agent's watch call them;
 * one thread per machine.
 */
#ifndef HVD_DIAGNOSTICS_PROC_H
#define HVD_DIAGNOSTICS_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/machine.h"

#define PROC_UNLIMITED UINT64_MAX
#define PROC_CPUS_MAX  8192

/* Numbers of linux/capability.h. */
enum { PROC_CAP_IPC_LOCK = 14, PROC_CAP_SYS_NICE = 23 };

/* Finds a row of /proc/self/limits by its name, "Max locked memory". -ENOENT, -EINVAL. */
int proc_limit_parse(const char *text, const char *name, uint64_t *ret_soft, uint64_t *ret_hard);
int proc_limit(const struct machine *m, const char *name, uint64_t *ret_soft, uint64_t *ret_hard);

/* 1: the capability is effective in the initial user namespace (a capability of another user
 * namespace does not satisfy the kernel's own checks), 0: it is not, -errno: unknown. */
int proc_capable(const struct machine *m, int cap);

/* Returns whether this process is in a user namespace other than the machine's initial one. */
bool proc_in_user_namespace(const struct machine *m);

/* The real user id, -1 where it cannot be read. */
int64_t proc_uid(const struct machine *m);

/* Returns whether this is a container of Docker, containerd, CRI-O or podman, or a pod, by their
 * marks in files and the environment. */
bool proc_in_container(const struct machine *m);

/* Returns whether at least local_ranks ranks run here: the job of the setting has then
 * already taken its memory and processes. Reads the answer "ranks", which the calling check has
 * to name in its probes. */
bool proc_ranks_run(const struct machine *m, int local_ranks);

/* A set of processors or memory nodes, as the kernel writes it: "0-3,8". */
struct proc_cpus {
    uint64_t bits[PROC_CPUS_MAX / 64];
};

/* Parses a list. -EINVAL: not a list, or a number of PROC_CPUS_MAX or more. An empty list is an
 * empty set. */
int proc_cpus_parse(const char *text, struct proc_cpus *ret);
int proc_cpus_count(const struct proc_cpus *set);
bool proc_cpus_meet(const struct proc_cpus *a, const struct proc_cpus *b);

/* Reads Cpus_allowed_list or Mems_allowed_list of this process. */
int proc_allowed(const struct machine *m, const char *key, struct proc_cpus *ret);

#endif
