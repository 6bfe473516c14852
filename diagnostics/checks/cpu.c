/* SPDX-License-Identifier: Apache-2.0
 *
 * cpu: are there enough processors, threads and NUMA nodes for the ranks of this machine?
 *
 * Reads /proc/self/status, /sys/devices/system and the answers "kmsg" and "numa". Pure functions,
 * run by doctor.c.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/cgroup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/kernel_log.h"
#include "diagnostics/proc.h"

#define CPUS_A_RANK 4
#define DAY_S       (24 * 3600)
#define NODES       "sys/devices/system/node"

/* The processors this process may run on. Returns false when they are unknown; the result is
 * set. */
static bool allowed(const struct view *v, struct result *r, struct proc_cpus *ret)
{
    int rc = proc_allowed(v->machine, "Cpus_allowed_list", ret);
    if (rc == 0)
        return true;
    result_skip(r, "no Cpus_allowed_list in /proc/self/status: %s", strerror(-rc));
    return false;
}

/* Returns whether this process may use every processor of the machine: a wider cpuset would then
 * not help. */
static bool has_all(const struct view *v, int allowed_cpus)
{
    char text[4096];
    struct proc_cpus online;
    return machine_line(v->machine, text, sizeof(text), "sys/devices/system/cpu/online") == 0 &&
           proc_cpus_parse(text, &online) == 0 && proc_cpus_count(&online) <= allowed_cpus;
}

static void advise_fewer(struct result *r, int cpus)
{
    result_action(r, ACTION_JOB);
    result_fix(r, FIX_DOCKER, "the machine has no more processors: at most %d rank%s here", cpus,
               cpus == 1 ? "" : "s");
    result_fix(r, FIX_K8S, "larger nodes, or fewer ranks for each pod");
    result_fix(r, FIX_HOST, "the machine has no more processors: hvdrun -np %d, or more machines",
               cpus);
}

static void check_allowed(const struct view *v, struct result *r)
{
    int ranks = v->setting->local_ranks;
    struct proc_cpus set;
    if (!allowed(v, r, &set))
        return;
    int n = proc_cpus_count(&set);
    const char *s = ranks == 1 ? "" : "s", *many = n == 1 ? "" : "s";
    result_observed(r, "%d", n);
    result_expected(r, ">= %d", v->setting->profiles & PROFILE_GPU ? CPUS_A_RANK * ranks : ranks);
    if (n < ranks && v->setting->profiles & PROFILE_GPU)
        result_fail(r, "%d processor%s for %d ranks: ranks have to share a processor", n, many,
                    ranks);
    else if (n < ranks)
        result_warn(r, "%d processor%s for %d ranks: ranks have to share a processor", n, many,
                    ranks);
    else if (n < CPUS_A_RANK * ranks && v->setting->profiles & PROFILE_GPU)
        result_warn(r,
                    "%d processor%s for %d rank%s, fewer than 4 for each: data loading delays the "
                    "GPUs",
                    n, many, ranks, s);
    else if (n < CPUS_A_RANK * ranks)
        result_info(r, "%d processor%s for %d rank%s, fewer than 4 for each", n, many, ranks, s);
    else
        result_pass(r, "%d processors for %d rank%s", n, ranks, s);
    if (n < ranks && has_all(v, n))
        advise_fewer(r, n);
}

/* Processors that threads can use: those allowed, or fewer where a CPU quota allows less. */
static double cpus_paid(const struct view *v, const struct proc_cpus *set)
{
    struct cgroup cg;
    struct cgroup_cpu cpu;
    double n = proc_cpus_count(set);
    if (cgroup_find(v->machine, &cg) == 0 && cgroup_cpu(v->machine, &cg, &cpu) == 0 &&
        cpu.cpus > 0 && cpu.cpus < n)
        n = cpu.cpus;
    return n;
}

static void check_threads(const struct view *v, struct result *r)
{
    static const char *const names[] = {"OMP_NUM_THREADS", "MKL_NUM_THREADS"};
    int ranks = v->setting->local_ranks;
    const char *name = NULL;
    long threads = 0;
    struct proc_cpus set;
    if (!allowed(v, r, &set))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && threads < 1; i++) {
        const char *value = machine_env(v->machine, names[i]);
        threads = value ? strtol(value, NULL, 10) : 0;
        name = names[i];
    }
    double cpus = cpus_paid(v, &set);
    int best = cpus > ranks ? (int)(cpus / ranks) : 1;
    bool unset = threads < 1 || threads > 1000000;
    if (unset) /* without the variable OpenMP starts a thread for each processor that it sees */
        threads = proc_cpus_count(&set);
    double all = (double)threads * ranks;
    result_observed(r, "%.0f", all);
    result_expected(r, "<= %.4g", 1.5 * cpus);
    if (threads == 1) {
        result_pass(r, "%d rank%s with one thread each", ranks, ranks == 1 ? "" : "s");
    } else if (all > 1.5 * cpus) {
        if (unset)
            result_warn(r, "OMP_NUM_THREADS is not set: %d rank%s x %ld threads on %.4g processors",
                        ranks, ranks == 1 ? "" : "s", threads, cpus);
        else
            result_warn(r, "%s=%ld: %d rank%s x %ld threads on %.4g processors", name, threads,
                        ranks, ranks == 1 ? "" : "s", threads, cpus);
        result_fix(r, FIX_DOCKER, "docker run -e OMP_NUM_THREADS=%d ...", best);
        result_fix(r, FIX_K8S, "env: [{name: OMP_NUM_THREADS, value: \"%d\"}]", best);
        result_fix(r, FIX_HOST, "export OMP_NUM_THREADS=%d", best);
    } else {
        result_pass(r, "%d rank%s x %ld thread%s on %.4g processors", ranks, ranks == 1 ? "" : "s",
                    threads, threads == 1 ? "" : "s", cpus);
    }
}

/* Fills ret with the numbers of node0, node1 ...; returns how many. */
static int nodes(const struct machine *m, int *ret, int max)
{
    auto_free char **names = NULL;
    int n = 0;
    if (machine_list(m, NODES, &names, NULL) < 0)
        return 0;
    for (size_t i = 0; names[i] && n < max; i++)
        if (strncmp(names[i], "node", 4) == 0 && isdigit((unsigned char)names[i][4]))
            ret[n++] = atoi(names[i] + 4);
    return n;
}

static bool has(const struct proc_cpus *set, int i)
{
    return i >= 0 && i < PROC_CPUS_MAX && set->bits[i / 64] >> (i % 64) & 1;
}

/* Warns of NUMA nodes whose processors this process may use but whose memory it may not. */
static void check_nodes(const struct view *v, struct result *r)
{
    struct proc_cpus cpus, mems;
    int list[256], n, used = 0, far = 0, first = -1;
    if (!allowed(v, r, &cpus))
        return;
    if (proc_allowed(v->machine, "Mems_allowed_list", &mems) < 0 ||
        (n = nodes(v->machine, list, 256)) == 0) {
        result_skip(r, "no NUMA nodes are visible: needs /sys");
        return;
    }
    for (int i = 0; i < n; i++) {
        char text[4096];
        struct proc_cpus own;
        if (machine_line(v->machine, text, sizeof(text), NODES "/node%d/cpulist", list[i]) < 0 ||
            proc_cpus_parse(text, &own) < 0 || !proc_cpus_meet(&own, &cpus))
            continue;
        used++;
        if (has(&mems, list[i]))
            continue;
        far++;
        first = first < 0 ? list[i] : first;
    }
    result_observed(r, "%d of %d", used - far, used);
    result_expected(r, "memory of every node whose processors are used");
    if (far > 0)
        result_warn(r,
                    "processors of %d NUMA nodes, but no memory of %d of them (node %d): every "
                    "access from there is remote",
                    used, far, first);
    else if (n == 1)
        result_pass(r, "one NUMA node");
    else
        result_pass(r, "processors and memory of %d of %d NUMA nodes", used, n);
}

static bool is_gpu(const struct machine *m, const char *device)
{
    char vendor[16], class[16];
    return machine_line(m, vendor, sizeof(vendor), "sys/bus/pci/devices/%s/vendor", device) == 0 &&
           strcmp(vendor, "0x10de") == 0 &&
           machine_line(m, class, sizeof(class), "sys/bus/pci/devices/%s/class", device) == 0 &&
           strncmp(class, "0x03", 4) == 0;
}

static void check_affinity(const struct view *v, struct result *r)
{
    auto_free char **names = NULL;
    char far[128] = "";
    struct proc_cpus cpus;
    int gpus = 0, away = 0;
    if (!allowed(v, r, &cpus))
        return;
    if (machine_list(v->machine, "sys/bus/pci/devices", &names, NULL) < 0) {
        result_skip(r, "/sys/bus/pci/devices cannot be listed");
        return;
    }
    for (size_t i = 0; names[i]; i++) {
        char text[4096];
        struct proc_cpus local;
        if (!is_gpu(v->machine, names[i]) ||
            machine_line(v->machine, text, sizeof(text), "sys/bus/pci/devices/%s/local_cpulist",
                         names[i]) < 0 ||
            proc_cpus_parse(text, &local) < 0)
            continue;
        gpus++;
        if (proc_cpus_count(&local) == 0 || proc_cpus_meet(&local, &cpus))
            continue;
        if (away++ < 4)
            snprintf(far + strlen(far), sizeof(far) - strlen(far), "%s%.16s", *far ? ", " : "",
                     names[i]);
    }
    result_observed(r, "%d of %d", gpus - away, gpus);
    result_expected(r, "processors near every GPU");
    if (gpus == 0)
        result_skip(r, "no NVIDIA GPU in /sys/bus/pci/devices");
    else if (away > 0)
        result_warn(r,
                    "none of the allowed processors is near %d of %d GPUs (%s): their data crosses "
                    "between CPU sockets",
                    away, gpus, far);
    else
        result_pass(r, "allowed processors are near each of %d GPU%s", gpus, gpus == 1 ? "" : "s");
}

static void check_governor(const struct view *v, struct result *r)
{
    struct proc_cpus cpus;
    char governor[32], first[32] = "", driver[32] = "";
    int seen = 0, saving = 0, lazy = 0;
    if (!allowed(v, r, &cpus))
        return;
    for (int i = 0; i < PROC_CPUS_MAX; i++) {
        if (!has(&cpus, i) ||
            machine_line(v->machine, governor, sizeof(governor),
                         "sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", i) < 0)
            continue;
        if (seen++ == 0) {
            memcpy(first, governor, sizeof(first));
            machine_line(v->machine, driver, sizeof(driver),
                         "sys/devices/system/cpu/cpu%d/cpufreq/scaling_driver", i);
        }
        saving += strcmp(governor, "powersave") == 0;
        lazy += strcmp(governor, "conservative") == 0;
    }
    /* With these drivers the hardware chooses the clock; "powersave" is only the policy's name. */
    bool hardware = strcmp(driver, "intel_pstate") == 0 || strcmp(driver, "amd-pstate-epp") == 0;
    result_observed(r, "%s", first);
    result_expected(r, "performance");
    if (seen == 0)
        result_pass(r, "no governor here: the hypervisor or firmware sets the clock");
    else if (saving && hardware)
        result_info(r,
                    "governor powersave of %s: the processor chooses, \"performance\" keeps it "
                    "faster",
                    driver);
    else if (saving || lazy)
        result_warn(r, "%d of %d processors run with governor %s", saving ? saving : lazy, seen,
                    saving ? "powersave: the lowest clock" : "conservative");
    else
        result_pass(r, "governor %s on %d processors", first, seen);
}

static void check_lockup(const struct view *v, struct result *r)
{
    const struct answer *a;
    const char *line;
    char when[64];
    int64_t age;
    if (!kernel_log_read(v, r, &a))
        return;
    int n = kernel_log_newest(a, "lockup", &line, &age);
    result_observed(r, "%d", n);
    result_expected(r, "0 within a day");
    if (n == 0) {
        result_pass(r, "no processor got stuck in the kernel");
        return;
    }
    kernel_log_age(when, sizeof(when), age);
    if (age > DAY_S)
        result_warn(r, "%d report%s of stuck processors, the last %s: %.160s", n, n == 1 ? "" : "s",
                    when, line);
    else
        result_fail(r, "%d report%s of stuck processors, the last %s: %.160s", n, n == 1 ? "" : "s",
                    when, line);
}

static void check_libnuma(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "numa");
    int list[2];
    if (!result_needs(r, a, "libnuma"))
        return;
    const char *path = answer_str(a, "path", NULL);
    result_observed(r, "%s", path ? path : "none");
    result_expected(r, "libnuma.so.1");
    if (path)
        result_pass(r, "libnuma: %s", path);
    else if (nodes(v->machine, list, 2) < 2)
        result_info(r, "libnuma.so.1 is not in this image; with one NUMA node few miss it");
    else
        result_warn(r, "libnuma.so.1 is not in this image: Open MPI, UCX and numactl cannot bind "
                       "memory");
}

#define CPUSETS "https://man7.org/linux/man-pages/man7/cpuset.7.html"
#define POD_CPU "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/"

static const struct check rows[] = {
    {.id = "cpus-allowed",
     .code = "HVD4001",
     .group = GROUP_CPU,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .needs = "/proc",
     .run = check_allowed,
     .title = "processors for the ranks",
     .why = "A rank that shares its processor is late in every collective, and all other ranks "
            "wait for it.",
     .fix = {"docker run --cpuset-cpus=0-31 ..., or without --cpuset-cpus",
             "resources: {limits: {cpu: 32}} (4 or more a rank; whole numbers with the static CPU "
             "policy)",
             "taskset -cp PID shows it; srun --cpus-per-task=8; mpirun --bind-to none"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "Cpus_allowed_list of /proc/self/status. Fewer than the local ranks fails in GPU jobs "
         "and warns elsewhere; fewer than 4 a rank (own threshold) warns in GPU jobs, else is "
         "information. Quotas: "
         "cgroup-cpu-quota.",
     .refs = {CPUSETS, POD_CPU}},
    {.id = "omp-threads",
     .code = "HVD4002",
     .group = GROUP_CPU,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .needs = "/proc",
     .run = check_threads,
     .title = "threads of all ranks fit",
     .why = "Every rank starts as many OpenMP threads as it sees processors. Several such ranks on "
            "one machine run several times slower.",
     .fix = {"docker run -e OMP_NUM_THREADS=4 ...", "env: [{name: OMP_NUM_THREADS, value: \"4\"}]",
             "export OMP_NUM_THREADS=4"},
     .action = ACTION_ENVIRONMENT,
     .explain = "OMP_NUM_THREADS, else MKL_NUM_THREADS, else one thread for each processor; times "
                "the local ranks. Compared with the allowed processors, or with the CPU quota if "
                "that is less. More than 1.5 "
                "times warns (own threshold).",
     .refs = {"https://docs.pytorch.org/docs/stable/notes/multiprocessing.html"}},
    {.id = "numa-nodes",
     .code = "HVD4003",
     .group = GROUP_CPU,
     .level = 1,
     .needs = "/proc, /sys",
     .run = check_nodes,
     .title = "memory near the processors",
     .why =
         "Processors whose own node's memory is not allowed fetch everything from another socket, "
         "at about half the bandwidth.",
     .fix = {"docker run --cpuset-cpus=0-31 --cpuset-mems=0 ... of the same node",
             "kubelet: topologyManagerPolicy: single-numa-node, memoryManagerPolicy: Static",
             "numactl --cpunodebind=0 --membind=0 ..."},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "Nodes of /sys/devices/system/node whose cpulist overlaps Cpus_allowed_list, "
                "compared with Mems_allowed_list of /proc/self/status.",
     .refs = {CPUSETS, "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"}},
    {.id = "rank-gpu-affinity",
     .code = "HVD4004",
     .group = GROUP_CPU,
     .level = 1,
     .profiles = PROFILE_GPU,
     .needs = "/sys",
     .run = check_affinity,
     .title = "processors near the GPUs",
     .why =
         "Data for a GPU on another socket crosses between the sockets twice: slower copies, more "
         "jitter.",
     .fix = {"docker run --cpuset-cpus=... of the GPU's node (nvidia-smi topo -m)",
             "kubelet: topologyManagerPolicy: best-effort",
             "numactl --cpunodebind=N ... "
             "(nvidia-smi topo -m shows N)"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "local_cpulist of each NVIDIA display device in /sys/bus/pci/devices, compared with "
         "Cpus_allowed_list. GPUs of the machine that this container does not have count too.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
              "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"}},
    {.id = "cpu-governor",
     .code = "HVD4005",
     .group = GROUP_CPU,
     .level = 1,
     .needs = "/sys",
     .run = check_governor,
     .title = "processors may run at full clock",
     .why =
         "At the lowest clock the small operations between GPU kernels take up to three times as "
         "long.",
     .fix = {NULL, "as on a host, on the node (a tuned profile)",
             "cpupower frequency-set -g performance; or tuned-adm profile throughput-performance"},
     .action = ACTION_HOST,
     .explain =
         "cpufreq/scaling_governor of the allowed processors: powersave and conservative warn. "
         "With intel_pstate and amd-pstate-epp \"powersave\" lets the processor choose and is "
         "information.",
     .refs = {"https://docs.kernel.org/admin-guide/pm/cpufreq.html",
              "https://docs.kernel.org/admin-guide/pm/intel_pstate.html"}},
    {.id = "cpu-soft-lockup",
     .code = "HVD4006",
     .group = GROUP_CPU,
     .level = 1,
     .needs = "CAP_SYSLOG, or kernel.dmesg_restrict=0",
     .probes = {"kmsg"},
     .run = check_lockup,
     .title = "no stuck processors",
     .why = "A processor that stays in the kernel for more than 20 s stops every thread on it: a "
            "driver's bug, broken hardware, or a virtual machine that gets no time.",
     .fix = {NULL, "kubectl cordon NODE; kubectl drain NODE",
             "dmesg -T | grep -A30 lockup shows where; update driver and firmware, reboot"},
     .action = ACTION_REPLACE_NODE,
     .explain = "\"soft lockup\", \"hard LOCKUP\" and \"self-detected stall\" in the kernel's log: "
                "within a day fails, older warns.",
     .refs = {"https://docs.kernel.org/admin-guide/lockup-watchdogs.html",
              "https://docs.kernel.org/RCU/stallwarn.html"}},
    {.id = "libnuma-present",
     .code = "HVD4007",
     .group = GROUP_CPU,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"numa"},
     .run = check_libnuma,
     .title = "libnuma is in the image",
     .why =
         "\"libnuma.so.1: cannot open shared object file\" when Open MPI or UCX load; without it "
         "memory is not bound to nodes.",
     .fix = {"RUN apt-get install -y libnuma1 (Red Hat: numactl-libs)",
             "an image that has libnuma1", "apt-get install libnuma1 (to build: libnuma-dev)"},
     .action = ACTION_INSTALL,
     .explain =
         "Loaded by hvd-probe under the image's own loader. Warns on machines of two or more "
         "NUMA nodes, else is information.",
     .refs = {"https://github.com/numactl/numactl"}},
};

const struct check_table checks_cpu = {rows, sizeof(rows) / sizeof(*rows)};
