/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroup: the control groups that this process is in, and what they allow it: version 1, version 2
 * or both at once (hybrid), in a container or not.
 *
 * Every limit from the process's own group up to the top of the mount applies: the tightest one is
 * reported. Checks call this once; the agent's watch calls it repeatedly with one struct cgroup.
 * One thread per machine; nothing is owned.
 */
#ifndef HVD_DIAGNOSTICS_CGROUP_H
#define HVD_DIAGNOSTICS_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "diagnostics/machine.h"

#define CGROUP_PATH     2048
#define CGROUP_NO_LIMIT UINT64_MAX

enum cgroup_kind { CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_KINDS };
enum cgroup_mode { CGROUP_NONE, CGROUP_V1, CGROUP_V2, CGROUP_HYBRID };

struct cgroup_place {
    int version; /* version of the hierarchy that has the controller; 0: not visible here */
    size_t top;  /* dir[0..top) is the mount: the walk upwards ends there */
    char dir[CGROUP_PATH]; /* "sys/fs/cgroup/memory/kubepods/x", no slash at either end */
};

struct cgroup {
    enum cgroup_mode mode;
    struct cgroup_place at[CGROUP_KINDS];
};

/* Parses the texts of /proc/self/cgroup and /proc/self/mountinfo. -ENOENT: no hierarchy is
 * mounted. */
int cgroup_parse(const char *self, const char *mountinfo, struct cgroup *ret);

/* Reads both files of a machine and parses them. Where the folder of a cgroup is missing, the
 * mount itself is used. */
int cgroup_find(const struct machine *m, struct cgroup *ret);

struct cgroup_memory {
    uint64_t limit;    /* bytes, the tightest; CGROUP_NO_LIMIT */
    uint64_t usage;    /* usage of the group with the least room; without page cache that the kernel
                          can drop */
    uint64_t room;     /* bytes until the first limit is reached; CGROUP_NO_LIMIT */
    int64_t oom_kills; /* kills in the process's own group since it was made; -1: unknown */
};

struct cgroup_cpu {
    double cpus;       /* CPUs that the tightest quota allows; 0: no quota */
    int64_t periods;   /* quota periods of that group since the group was made; -1: unknown */
    int64_t throttled; /* periods in which the quota ran out */
    int64_t throttled_us;
};

struct cgroup_pids {
    uint64_t limit;   /* limit of the group that is nearest to its limit; CGROUP_NO_LIMIT */
    uint64_t current; /* used in that group */
};

/* -ENOENT: the controller is not visible here. */
int cgroup_memory(const struct machine *m, const struct cgroup *cg, struct cgroup_memory *ret);
int cgroup_cpu(const struct machine *m, const struct cgroup *cg, struct cgroup_cpu *ret);
int cgroup_pids(const struct machine *m, const struct cgroup *cg, struct cgroup_pids *ret);

#endif
