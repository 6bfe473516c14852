/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroup: the container's limits, and how much of each is left.
 *
 * Counters count since the cgroup was created; the agent's watch looks at their growth. Pure
 * functions over diagnostics/cgroup, run by doctor.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/cgroup.h"
#include "diagnostics/check.h"
#include "diagnostics/proc.h"

#define MIB UINT64_C(1048576)

#define ROOM_LEAST  (100 * MIB)
#define PERIODS_FEW 100

/* Returns false when the cgroup is not found; the result is set. */
static bool find(const struct view *v, struct result *r, struct cgroup *cg, enum cgroup_kind kind,
                 const char *controller)
{
    int rc = cgroup_find(v->machine, cg);
    if (rc == 0 && cg->at[kind].version)
        return true;
    if (rc == -EACCES || rc == -EPERM)
        result_skip(r, "/proc/self/cgroup: %s", strerror(-rc));
    else
        result_skip(r, "the %s controller is not visible: needs /sys/fs/cgroup mounted",
                    controller);
    return false;
}

static void check_version(const struct view *v, struct result *r)
{
    static const char *const names[] = {"none", "v1", "v2", "v1 and v2 (hybrid)"};
    static const char *const kinds[CGROUP_KINDS] = {"memory", "cpu", "pids"};
    char missing[64] = "";
    struct cgroup cg;
    int rc = cgroup_find(v->machine, &cg);
    for (int i = 0; rc == 0 && i < CGROUP_KINDS; i++)
        if (!cg.at[i].version)
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s%s",
                     *missing ? ", " : "", kinds[i]);
    result_observed(r, "%s", names[cg.mode]);
    result_expected(r, "v2");
    if (rc < 0)
        result_skip(r, "no cgroup is visible: needs /sys/fs/cgroup mounted (and /proc)");
    else if (*missing)
        result_info(r, "cgroup %s without %s: their limits are not visible here", names[cg.mode],
                    missing);
    else if (cg.mode == CGROUP_V2)
        result_pass(r, "cgroup v2");
    else
        result_info(r, "cgroup %s: Kubernetes and systemd are dropping v1", names[cg.mode]);
}

static void check_memory(const struct view *v, struct result *r)
{
    struct cgroup cg;
    struct cgroup_memory memory;
    char limit[32], room[32], usage[32];
    if (!find(v, r, &cg, CGROUP_MEMORY, "memory") || cgroup_memory(v->machine, &cg, &memory) < 0)
        return;
    if (memory.limit == CGROUP_NO_LIMIT) {
        result_pass(r, "no memory limit");
        result_observed(r, "none");
        return;
    }
    check_bytes(limit, sizeof(limit), memory.limit);
    check_bytes(room, sizeof(room), memory.room);
    check_bytes(usage, sizeof(usage), memory.usage);
    uint64_t of = memory.usage + memory.room;
    result_observed(r, "%llu", (unsigned long long)memory.room);
    result_expected(r, ">= %llu left", (unsigned long long)(of / 10));
    if (memory.room < ROOM_LEAST)
        result_fail(r,
                    "%s left below the memory limit of %s (%s in use): the next process is "
                    "killed",
                    room, limit, usage);
    else if (memory.room < of / 10)
        result_warn(r, "%s left below the memory limit of %s (%s in use)", room, limit, usage);
    else
        result_pass(r, "memory limit %s, %s in use, %s left", limit, usage, room);
}

static void check_oom(const struct view *v, struct result *r)
{
    struct cgroup cg;
    struct cgroup_memory memory;
    if (!find(v, r, &cg, CGROUP_MEMORY, "memory") || cgroup_memory(v->machine, &cg, &memory) < 0)
        return;
    result_observed(r, "%lld", (long long)memory.oom_kills);
    result_expected(r, "0");
    if (memory.oom_kills < 0)
        result_skip(r, "the cgroup does not count OOM kills (it is the root cgroup, or Linux is "
                       "older than 4.13)");
    else if (memory.oom_kills > 0)
        result_warn(r,
                    "the kernel OOM-killed %lld process%s of this cgroup since it "
                    "was created",
                    (long long)memory.oom_kills, memory.oom_kills == 1 ? "" : "es");
    else
        result_pass(r, "no process was OOM-killed since the cgroup was created");
}

static void check_quota(const struct view *v, struct result *r)
{
    int ranks = v->setting->local_ranks;
    struct cgroup cg;
    struct cgroup_cpu cpu;
    if (!find(v, r, &cg, CGROUP_CPU, "cpu") || cgroup_cpu(v->machine, &cg, &cpu) < 0)
        return;
    result_expected(r, "none, or >= %d", ranks);
    if (cpu.cpus == 0) {
        result_observed(r, "none");
        result_pass(r, "no CPU quota");
        return;
    }
    result_observed(r, "%.4g", cpu.cpus);
    if (cpu.cpus < ranks)
        result_warn(r,
                    "CPU quota of %.4g processors for %d rank%s: the kernel stops ranks in turn, "
                    "and all others wait for them",
                    cpu.cpus, ranks, ranks == 1 ? "" : "s");
    else
        result_pass(r, "CPU quota of %.4g processors for %d rank%s", cpu.cpus, ranks,
                    ranks == 1 ? "" : "s");
    if (cpu.cpus >= ranks)
        return;
    result_fix(r, FIX_DOCKER,
               "docker run --cpus=%d ..., or without --cpus; docker update --cpus=%d "
               "NAME",
               ranks, ranks);
    result_fix(r, FIX_K8S, "resources: {requests: {cpu: %d}} without limits.cpu, or a limit of %d",
               ranks, ranks);
    result_fix(r, FIX_HOST, "systemctl set-property NAME.service CPUQuota=%d00%%", ranks);
}

#define THROTTLED "throttled in %.1f %% of all periods since the cgroup was created (%.0f s in all)"

static void check_throttle(const struct view *v, struct result *r)
{
    struct cgroup cg;
    struct cgroup_cpu cpu;
    if (!find(v, r, &cg, CGROUP_CPU, "cpu") || cgroup_cpu(v->machine, &cg, &cpu) < 0)
        return;
    result_expected(r, "<= 5 %%");
    if (cpu.cpus == 0 && cpu.throttled <= 0) {
        result_pass(r, "no CPU quota, no throttling");
        return;
    }
    if (cpu.periods < 0 || cpu.throttled < 0) {
        result_skip(r, "cpu.stat has no counters of throttling");
        return;
    }
    double percent = cpu.periods ? 100.0 * (double)cpu.throttled / (double)cpu.periods : 0;
    double s_all = cpu.throttled_us > 0 ? (double)cpu.throttled_us / 1e6 : 0;
    result_observed(r, "%.1f %%", percent);
    if (cpu.periods < PERIODS_FEW && cpu.throttled > 0)
        result_info(r, "throttled in %lld of only %lld periods since the cgroup was created",
                    (long long)cpu.throttled, (long long)cpu.periods);
    else if (percent > 25)
        result_fail(r, THROTTLED, percent, s_all);
    else if (percent > 5)
        result_warn(r, THROTTLED, percent, s_all);
    else
        result_pass(r, "throttled in %.1f %% of %lld periods since the cgroup was created", percent,
                    (long long)cpu.periods);
}

static void check_pids(const struct view *v, struct result *r)
{
    struct cgroup cg;
    struct cgroup_pids pids;
    if (!find(v, r, &cg, CGROUP_PIDS, "pids") || cgroup_pids(v->machine, &cg, &pids) < 0)
        return;
    if (pids.limit == CGROUP_NO_LIMIT) {
        result_pass(r, "no limit on processes and threads");
        return;
    }
    double percent = 100.0 * (double)pids.current / (double)pids.limit;
    uint64_t room = pids.limit > pids.current ? pids.limit - pids.current : 0;
    uint64_t wanted = 64 * (uint64_t)v->setting->local_ranks;
    result_observed(r, "%llu", (unsigned long long)pids.current);
    result_expected(r, "< 80 %% of %llu", (unsigned long long)pids.limit);
    if (percent >= 95)
        result_fail(r, "%llu of %llu processes and threads are in use (%.0f %%)",
                    (unsigned long long)pids.current, (unsigned long long)pids.limit, percent);
    else if (percent >= 80)
        result_warn(r, "%llu of %llu processes and threads are in use (%.0f %%)",
                    (unsigned long long)pids.current, (unsigned long long)pids.limit, percent);
    else if (room < wanted && !proc_ranks_run(v->machine, v->setting->local_ranks))
        result_warn(r,
                    "room for %llu more processes and threads of %llu; %d rank%s want%s about "
                    "%llu",
                    (unsigned long long)room, (unsigned long long)pids.limit,
                    v->setting->local_ranks, v->setting->local_ranks == 1 ? "" : "s",
                    v->setting->local_ranks == 1 ? "s" : "", (unsigned long long)wanted);
    else
        result_pass(r, "%llu of %llu processes and threads are in use",
                    (unsigned long long)pids.current, (unsigned long long)pids.limit);
}

#define CGROUP_V2_DOC "https://docs.kernel.org/admin-guide/cgroup-v2.html"
#define CFS_DOC       "https://docs.kernel.org/scheduler/sched-bwc.html"
#define DOCKER_LIMITS "https://docs.docker.com/engine/containers/resource_constraints/"
#define POD_RESOURCES                                                                              \
    "https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/"

static const struct check rows[] = {
    {.id = "cgroup-version",
     .code = "HVD2001",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc, /sys/fs/cgroup",
     .run = check_version,
     .title = "version of cgroups",
     .why =
         "Limits that are not visible cannot be checked. v1 does not report pressure, and its OOM "
         "killer ends single processes of a container instead of all.",
     .fix = {"docker run --cgroupns=private ... mounts /sys/fs/cgroup", NULL,
             "kernel command line: systemd.unified_cgroup_hierarchy=1, reboot"},
     .action = ACTION_HOST,
     .explain = "/proc/self/cgroup and /proc/self/mountinfo: v1, v2, or both at once (hybrid: v1 "
                "has the controllers). Kubernetes has v1 in maintenance only since 1.31.",
     .refs = {"https://kubernetes.io/docs/concepts/architecture/cgroups/", CGROUP_V2_DOC}},
    {.id = "cgroup-mem-limit",
     .code = "HVD2002",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/sys/fs/cgroup",
     .run = check_memory,
     .title = "memory left in the container",
     .why = "At the limit the kernel kills a process of the container with SIGKILL: exit code 137, "
            "\"DataLoader worker is killed by signal: Killed\", and no message from the rank.",
     .fix = {"docker run --memory=64g ...; docker update --memory=64g --memory-swap=64g NAME",
             "resources: {requests: {memory: 64Gi}, limits: {memory: 64Gi}}",
             "systemctl set-property NAME.service MemoryMax=64G"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "memory.max and memory.current (v1: limit_in_bytes, usage_in_bytes) from the "
         "process's cgroup up to the top that is visible. Page cache that the kernel can drop "
         "(inactive_file) is not counted, /dev/shm is. Less than 10 % left warns, less than "
         "100 MiB fails (own thresholds).",
     .refs = {DOCKER_LIMITS, POD_RESOURCES, CGROUP_V2_DOC}},
    {.id = "cgroup-oom-kill",
     .code = "HVD2003",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/sys/fs/cgroup",
     .run = check_oom,
     .title = "processes killed by the OOM killer",
     .why = "A rank or worker that ended with 137 or SIGKILL was killed by this container's memory "
            "limit.",
     .fix = {"docker run --memory=64g ... (larger); fewer DataLoader workers; smaller batches",
             "raise resources.limits.memory; fewer DataLoader workers",
             "systemctl set-property NAME.service MemoryMax=64G"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "oom_kill in memory.events (v1: memory.oom_control) since the cgroup was created, which "
         "for a container is its start. Needs no access to the kernel's log.",
     .refs = {CGROUP_V2_DOC, POD_RESOURCES}},
    {.id = "cgroup-cpu-quota",
     .code = "HVD2004",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/sys/fs/cgroup",
     .run = check_quota,
     .title = "processors that the CPU quota allows",
     .why = "With less than one processor for each rank the kernel stops ranks in the middle of a "
            "step, and "
            "all others wait for them.",
     .fix = {"docker run --cpus=N ... with N >= ranks, or without --cpus",
             "resources: {requests: {cpu: 8}} without limits.cpu, or a limit >= the ranks",
             "systemctl set-property NAME.service CPUQuota="},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "The smallest cpu.max (v1: cpu.cfs_quota_us / cpu.cfs_period_us) from the process's "
         "cgroup up to the top that is visible, compared with the number of local ranks.",
     .refs = {DOCKER_LIMITS, POD_RESOURCES, CFS_DOC}},
    {.id = "cgroup-cpu-throttle",
     .code = "HVD2005",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/sys/fs/cgroup",
     .run = check_throttle,
     .title = "throttling by the CPU quota",
     .why =
         "Each throttled period stops the container's threads for up to 100 ms: steps take longer "
         "and vary, collectives time out.",
     .fix = {"docker update --cpus=N NAME with a larger N; fewer threads: OMP_NUM_THREADS",
             "raise or remove resources.limits.cpu; fewer threads: OMP_NUM_THREADS",
             "systemctl set-property NAME.service CPUQuota="},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "nr_throttled / nr_periods of cpu.stat since the cgroup was created, of the group with "
         "the tightest quota. Above 5 % warns, above 25 % fails (own thresholds).",
     .refs = {CFS_DOC, POD_RESOURCES}},
    {.id = "cgroup-pids",
     .code = "HVD2006",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/sys/fs/cgroup",
     .probes = {"ranks"},
     .run = check_pids,
     .title = "processes and threads left in the container",
     .why = "Threads count as processes. At the limit fork and pthread_create fail: \"Resource "
            "temporarily "
            "unavailable\", \"can't start new thread\", OpenMP aborts.",
     .fix = {"docker run --pids-limit=-1 ...",
             "kubelet: podPidsLimit: 16384 (a pod cannot set it itself)",
             "systemctl set-property NAME.service TasksMax=infinity"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "pids.current compared with pids.max, of the group nearest to its limit from the "
                "process's own up. 80 % "
                "warns, 95 % fails, room for less than 64 a local rank warns (own thresholds).",
     .refs = {"https://kubernetes.io/docs/concepts/policy/pid-limiting/", DOCKER_LIMITS}},
};

const struct check_table checks_cgroup = {rows, sizeof(rows) / sizeof(*rows)};
