/* SPDX-License-Identifier: Apache-2.0
 *
 * proc: what /proc/self says about this process, for checks: limits, capabilities, namespaces,
 * lists of processors; and whether this is a container.
 *
 * The *_parse functions take foreign text and are fuzzed. Checks and the agent's watch call these;
 * one thread a machine.
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

/* A row of /proc/self/limits by its name, "Max locked memory". -ENOENT, -EINVAL. */
int proc_limit_parse(const char *text, const char *name, uint64_t *ret_soft, uint64_t *ret_hard);
int proc_limit(const struct machine *m, const char *name, uint64_t *ret_soft, uint64_t *ret_hard);

/* 1: the capability is effective and counts for the kernel's own checks (not lent by a user
 * namespace), 0: it does not, -errno: unknown. */
int proc_capable(const struct machine *m, int cap);

/* In a user namespace that is not the machine's first. */
bool proc_in_user_namespace(const struct machine *m);

/* The real user id, -1 where it cannot be read. */
int64_t proc_uid(const struct machine *m);

/* Docker, containerd, CRI-O, podman, a pod: told by their marks. */
bool proc_in_container(const struct machine *m);

/* As many ranks run here as the job has on this machine: they have already taken what ranks take.
 * By the answer "ranks", which a check that calls this asks for. */
bool proc_ranks_run(const struct machine *m, int local_ranks);

/* A set of processors or memory nodes, as the kernel writes it: "0-3,8". */
struct proc_cpus {
    uint64_t bits[PROC_CPUS_MAX / 64];
};

/* -EINVAL when it is no list or names more than PROC_CPUS_MAX. An empty list is an empty set. */
int proc_cpus_parse(const char *text, struct proc_cpus *ret);
int proc_cpus_count(const struct proc_cpus *set);
bool proc_cpus_meet(const struct proc_cpus *a, const struct proc_cpus *b);

/* Cpus_allowed_list, Mems_allowed_list of this process. */
int proc_allowed(const struct machine *m, const char *key, struct proc_cpus *ret);

#endif
