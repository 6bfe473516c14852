/* SPDX-License-Identifier: Apache-2.0
 *
 * limits: resource limits of a process: locked memory, stack, descriptors, processes, core files.
 *
 * Reads /proc/self/limits of the doctor itself: ranks that are started the same way get the same.
 * Pure functions, run by doctor.c.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/proc.h"
#include "diagnostics/rules.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)

#define STACK_LEAST      (8 * MIB)
#define NOFILE_LEAST     1024
#define NOFILE_GOOD      4096
#define NOFILE_HUGE      (UINT64_C(1) << 20)
#define PROCESSES_A_RANK 64

/* Reads a row of /proc/self/limits. Returns false when it cannot be read; the result is set. */
static bool limit(const struct view *v, struct result *r, const char *name, uint64_t *ret_soft,
                  uint64_t *ret_hard)
{
    int rc = proc_limit(v->machine, name, ret_soft, ret_hard);
    if (rc == 0)
        return true;
    if (rc == -EINVAL || machine_exists(v->machine, "proc/self/limits"))
        result_skip(r, "/proc/self/limits has no \"%s\"", name);
    else
        result_skip(r, "/proc/self/limits: %s", strerror(-rc));
    return false;
}

static char *bytes(char dst[32], uint64_t n)
{
    if (n == PROC_UNLIMITED)
        snprintf(dst, 32, "unlimited");
    else
        check_bytes(dst, 32, n);
    return dst;
}

static char *count(char dst[32], uint64_t n)
{
    if (n == PROC_UNLIMITED)
        snprintf(dst, 32, "unlimited");
    else
        snprintf(dst, 32, "%llu", (unsigned long long)n);
    return dst;
}

/* Returns whether there are an InfiniBand device and /dev/infiniband. /sys alone also shows devices
 * that only the host can use. */
static bool has_infiniband(const struct machine *m)
{
    auto_free char **names = NULL;
    size_t n = 0;
    return machine_list(m, "sys/class/infiniband", &names, &n) == 0 && n > 0 &&
           machine_exists(m, "dev/infiniband");
}

static void check_memlock(const struct view *v, struct result *r)
{
    uint64_t soft, hard;
    char a[32], b[32];
    if (!limit(v, r, "Max locked memory", &soft, &hard))
        return;
    count(a, soft);
    result_observed(r, "%s", a);
    result_expected(r, "unlimited");
    bytes(a, soft);
    bytes(b, hard);
    if (soft == PROC_UNLIMITED)
        result_pass(r, "memlock unlimited");
    else if (proc_capable(v->machine, PROC_CAP_IPC_LOCK) == 1)
        result_pass(r, "memlock %s, but CAP_IPC_LOCK lifts it", a);
    else if (has_infiniband(v->machine))
        result_fail(r,
                    "memlock %s (hard %s), and this machine has InfiniBand devices: memory for "
                    "them cannot be "
                    "registered",
                    a, b);
    else if (v->setting->profiles & PROFILE_GPU)
        result_warn(
            r,
            "memlock %s (hard %s), but unlimited is needed: RDMA, GDRCopy and io_uring lock "
            "memory",
            a, b);
    else
        result_info(r, "memlock %s (hard %s): enough without RDMA and GPUs", a, b);
    if (soft != PROC_UNLIMITED && hard == PROC_UNLIMITED)
        result_fix(r, FIX_HOST,
                   "ulimit -l unlimited (the hard limit allows it), or for good "
                   "/etc/security/limits.conf: \"* - memlock unlimited\"");
}

static void check_ipc_lock(const struct view *v, struct result *r)
{
    uint64_t soft = 0;
    int capable = proc_capable(v->machine, PROC_CAP_IPC_LOCK);
    if (capable < 0) {
        result_skip(r, "no CapEff in /proc/self/status: %s", strerror(-capable));
        return;
    }
    result_observed(r, "%s", capable ? "effective" : "missing");
    result_expected(r, "CAP_IPC_LOCK, or memlock unlimited");
    bool unlimited =
        proc_limit(v->machine, "Max locked memory", &soft, NULL) == 0 && soft == PROC_UNLIMITED;
    if (capable)
        result_pass(r, "CAP_IPC_LOCK is effective");
    else if (unlimited)
        result_pass(r, "no CAP_IPC_LOCK, and none needed: memlock is unlimited");
    else if (has_infiniband(v->machine))
        result_warn(r, "no CAP_IPC_LOCK%s and memlock is limited: RDMA cannot lock its buffers",
                    proc_in_user_namespace(v->machine) ? " (a user namespace cannot give it)" : "");
    else
        result_info(r, "no CAP_IPC_LOCK: only RDMA needs it, and there is no RDMA device");
}

static bool nccl_survives_unlimited(const struct machine *m)
{
    const char *version = answer_str(machine_answer(m, "nccl"), "version", NULL);
    if (!version) /* NVIDIA's images name their NCCL in this variable */
        version = machine_env(m, "NCCL_VERSION");
    return version && isdigit((unsigned char)*version) && version_compare(version, "2.28") >= 0;
}

static void check_stack(const struct view *v, struct result *r)
{
    uint64_t soft, hard;
    char a[32];
    if (!limit(v, r, "Max stack size", &soft, &hard))
        return;
    count(a, soft);
    result_observed(r, "%s", a);
    result_expected(r, "8 MiB to 64 MiB");
    bytes(a, soft);
    if (soft == PROC_UNLIMITED && v->setting->profiles & PROFILE_GPU &&
        !nccl_survives_unlimited(v->machine)) {
        result_warn(r, "stack unlimited: NCCL before 2.28 crashes when it starts its threads");
    } else if (soft < STACK_LEAST) {
        result_warn(r, "stack %s: less than the usual 8 MiB", a);
        result_why(r,
                   "Deep call chains (autograd, compilers, OpenMP regions) end in SIGSEGV without "
                   "a message.");
    } else {
        result_pass(r, "stack %s", a);
    }
}

/* A rank needs sockets to its peers, a pipe or two for each DataLoader worker, and a descriptor
 * for each shared tensor. */
static uint64_t nofile_wanted(const struct setting *s)
{
    uint64_t job = 1024 + 4 * (uint64_t)(s->ranks > 0 ? s->ranks : 0);
    return job > NOFILE_GOOD ? job : NOFILE_GOOD;
}

static void check_nofile_low(const struct view *v, struct result *r)
{
    uint64_t soft, hard, wanted = nofile_wanted(v->setting);
    char a[32], b[32];
    if (!limit(v, r, "Max open files", &soft, &hard))
        return;
    count(a, soft);
    count(b, hard);
    result_observed(r, "%s", a);
    result_expected(r, ">= %llu", (unsigned long long)wanted);
    if (soft < NOFILE_LEAST)
        result_fail(r,
                    "%s open files (hard %s): ranks run out of descriptors, at least %llu "
                    "wanted",
                    a, b, (unsigned long long)wanted);
    else if (soft < wanted)
        result_warn(r, "%s open files (hard %s), %llu wanted", a, b, (unsigned long long)wanted);
    else
        result_pass(r, "%s open files (hard %s)", a, b);
    if (soft < wanted && hard >= wanted)
        result_fix(r, FIX_HOST,
                   "ulimit -n %s (the hard limit allows it), or raise it for good in "
                   "/etc/security/limits.conf",
                   hard < NOFILE_HUGE ? b : "65536");
}

static void check_nofile_huge(const struct view *v, struct result *r)
{
    uint64_t soft, hard;
    char a[32];
    if (!limit(v, r, "Max open files", &soft, &hard))
        return;
    count(a, soft);
    result_observed(r, "%s", a);
    result_expected(r, "<= %llu", (unsigned long long)NOFILE_HUGE);
    if (soft > NOFILE_HUGE)
        result_warn(r,
                    "%s open files: programs that close all descriptors one by one hang for "
                    "minutes",
                    a);
    else
        result_pass(r, "%s open files: a loop over all descriptors is short", a);
}

static void check_file_max(const struct view *v, struct result *r)
{
    char line[128];
    unsigned long long used, unused, max;
    int rc = machine_line(v->machine, line, sizeof(line), "proc/sys/fs/file-nr");
    if (rc < 0 || sscanf(line, "%llu %llu %llu", &used, &unused, &max) != 3 || max == 0) {
        result_skip(r, "/proc/sys/fs/file-nr: %s", rc < 0 ? strerror(-rc) : "not understood");
        return;
    }
    double percent = 100.0 * (double)used / (double)max;
    result_observed(r, "%llu", used);
    result_expected(r, "< 80 %% of %llu", max);
    if (percent >= 95)
        result_fail(r, "%llu of the machine's %llu open files are in use (%.0f %%)", used, max,
                    percent);
    else if (percent >= 80)
        result_warn(r, "%llu of the machine's %llu open files are in use (%.0f %%)", used, max,
                    percent);
    else if (max > 1000000000)
        result_pass(r, "%llu files are open on the machine, far below its limit", used);
    else
        result_pass(r, "%llu of the machine's %llu open files are in use (%.0f %%)", used, max,
                    percent);
}

static void check_nproc(const struct view *v, struct result *r)
{
    int ranks = v->setting->local_ranks;
    uint64_t soft, hard, wanted = (uint64_t)ranks * PROCESSES_A_RANK;
    const struct answer *child = machine_answer(v->machine, "sandbox");
    char a[32], b[32];
    if (!limit(v, r, "Max processes", &soft, &hard))
        return;
    count(a, soft);
    count(b, hard);
    result_observed(r, "%s", a);
    result_expected(r, ">= %llu", (unsigned long long)wanted);
    if (child->state == ANSWER_FAILED && child->detail == EAGAIN && soft != PROC_UNLIMITED)
        result_fail(r,
                    "no process can be started any more: this user may have %s processes and "
                    "threads (or see cgroup-pids)",
                    a);
    else if (soft >= wanted)
        result_pass(r, "%s processes and threads for this user", a);
    else if (proc_uid(v->machine) == 0 && !proc_in_user_namespace(v->machine))
        result_pass(r, "%s processes and threads, but the limit does not apply to root", a);
    else
        result_warn(r, "%s processes and threads for this user (hard %s); %d rank%s want%s %llu", a,
                    b, ranks, ranks == 1 ? "" : "s", ranks == 1 ? "s" : "",
                    (unsigned long long)wanted);
}

static void check_core_pattern(const struct view *v, struct result *r)
{
    char pattern[256], a[64], b[32];
    uint64_t soft, hard;
    if (!limit(v, r, "Max core file size", &soft, &hard))
        return;
    if (machine_line(v->machine, pattern, sizeof(pattern), "proc/sys/kernel/core_pattern") < 0) {
        result_skip(r, "/proc/sys/kernel/core_pattern cannot be read");
        return;
    }
    result_observed(r, "%s", pattern);
    if (soft == PROC_UNLIMITED)
        snprintf(a, sizeof(a), "of any size");
    else
        snprintf(a, sizeof(a), "up to %s", check_bytes(b, sizeof(b), soft));
    if (pattern[0] == '|')
        result_info(
            r,
            "a crash passes its core to \"%.100s\", which runs on the host, not in the container",
            pattern + 1);
    else if (soft == 0)
        result_pass(r, "no core files (limit 0); \"ulimit -c unlimited\" would write \"%s\"",
                    pattern);
    else if (pattern[0] == '/')
        result_info(r, "each rank that crashes writes a core (%s) to %s", a, pattern);
    else
        result_info(r,
                    "each rank that crashes writes a core (%s) to \"%s\" in its working "
                    "directory",
                    a, pattern);
}

#define DOCKER_RUN "https://docs.docker.com/reference/cli/docker/container/run/"
#define GETRLIMIT  "https://man7.org/linux/man-pages/man2/getrlimit.2.html"
#define NCCL_TROUBLE                                                                               \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
#define POD_CAPS "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"

static const struct check rows[] = {
    {.id = "memlock-limit",
     .code = "HVD2101",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc",
     .run = check_memlock,
     .title = "limit on locked memory",
     .why = "RDMA locks every buffer it registers. With a small limit NCCL ends with \"ibv_reg_mr "
            "failed\" or \"ibv_create_cq failed: Cannot allocate memory\".",
     .fix = {"docker run --ulimit memlock=-1 ...",
             "securityContext: {capabilities: {add: [IPC_LOCK]}} (a pod has no ulimits; or "
             "LimitMEMLOCK=infinity in the node's containerd.service)",
             "/etc/security/limits.conf: \"* - memlock unlimited\", log in again; a service: "
             "LimitMEMLOCK=infinity"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "\"Max locked memory\" of /proc/self/limits. Unlimited, or CAP_IPC_LOCK effective, "
         "is good. Finite fails where /sys/class/infiniband has a device and /dev/infiniband "
         "is there, warns with GPUs, else is information.",
     .refs = {NCCL_TROUBLE, DOCKER_RUN, GETRLIMIT}},
    {.id = "cap-ipc-lock",
     .code = "HVD2102",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc",
     .run = check_ipc_lock,
     .title = "capability to lock memory",
     .why = "In a pod the capability is the only way to lock memory for RDMA: a pod cannot raise "
            "memlock.",
     .fix = {"docker run --cap-add=IPC_LOCK ... (or --ulimit memlock=-1)",
             "securityContext: {capabilities: {add: [IPC_LOCK]}}",
             "not needed: raise memlock instead, see memlock-limit"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "CapEff of /proc/self/status, bit 14. In a user namespace (rootless containers) the "
         "capability does not count for locking memory. Warns only where RDMA devices are "
         "there and memlock is finite.",
     .refs = {"https://man7.org/linux/man-pages/man7/capabilities.7.html", POD_CAPS}},
    {.id = "stack-limit",
     .code = "HVD2103",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc",
     .probes = {"nccl"},
     .run = check_stack,
     .title = "limit on the stack",
     .why = "NCCL before 2.28 sizes its threads' stacks by this limit and crashes when it is "
            "unlimited; a small one overflows.",
     .fix = {"docker run --ulimit stack=67108864 ...",
             "command: [sh, -c, \"ulimit -s 65536 && exec python train.py\"]", "ulimit -s 65536"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "\"Max stack size\" of /proc/self/limits. Unlimited warns in GPU jobs (fixed in "
                "NCCL 2.28; NCCL_VERSION in the environment is taken as NCCL's version). Below 8 "
                "MiB, Linux' own "
                "default, warns.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/release-notes/", DOCKER_RUN}},
    {.id = "nofile-low",
     .code = "HVD2104",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc",
     .run = check_nofile_low,
     .title = "enough open files",
     .why =
         "\"Too many open files\": a rank has sockets to its peers, DataLoader workers pass every "
         "tensor as a descriptor.",
     .fix =
         {"docker run --ulimit nofile=65536:65536 ...",
          "command: [sh, -c, \"ulimit -n 65536 && exec python train.py\"] (hard limit: LimitNOFILE "
          "in the node's containerd.service)",
          "/etc/security/limits.conf: \"* - nofile 65536\", log in again"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "Soft \"Max open files\" of /proc/self/limits. Below 1024 fails, below 4096 or 1024 "
         "+ 4 times the ranks warns (own thresholds).",
     .refs = {DOCKER_RUN, "https://docs.pytorch.org/docs/stable/multiprocessing.html"}},
    {.id = "nofile-huge",
     .code = "HVD2105",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc",
     .run = check_nofile_huge,
     .title = "not too many open files",
     .why =
         "Old programs (Python 2, orted, sshd, rpc daemons) close every possible descriptor before "
         "they start a child: with a billion of them that takes minutes at 100 % CPU.",
     .fix = {"docker run --ulimit nofile=65536:65536 ...",
             "command: [sh, -c, \"ulimit -n 65536 && exec python train.py\"]", "ulimit -n 65536"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "Soft \"Max open files\" of /proc/self/limits above 2^20 (own threshold). Comes from "
         "LimitNOFILE=infinity in docker.service or containerd.service, which newer packages "
         "no longer have.",
     .refs = {"https://github.com/containerd/containerd/pull/8924", DOCKER_RUN}},
    {.id = "file-max",
     .code = "HVD2106",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc/sys",
     .run = check_file_max,
     .title = "the machine's open files",
     .why = "At the limit every open(), socket() and accept() on the machine ends with \"Too many "
            "open files in system\".",
     .fix = {NULL, NULL,
             "sysctl -w fs.file-max=2097152; find the process that leaks descriptors: for p in "
             "/proc/[0-9]*; do echo $(ls "
             "$p/fd | wc -l) $p; done | sort -n | tail"},
     .action = ACTION_HOST,
     .explain = "/proc/sys/fs/file-nr: in use and the maximum. 80 % warns, 95 % fails (own "
                "thresholds).",
     .refs = {"https://docs.kernel.org/admin-guide/sysctl/fs.html"}},
    {.id = "nproc-limit",
     .code = "HVD2107",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc",
     .probes = {"sandbox"},
     .run = check_nproc,
     .title = "limit on processes and threads",
     .why = "A rank starts dozens of threads (OpenMP, NCCL, DataLoader). At the limit: \"Resource "
            "temporarily unavailable\", \"pthread_create failed\".",
     .fix = {"docker run --ulimit nproc=65536 ...", "as on a host, on the node",
             "/etc/security/limits.conf: \"* - nproc 65536\", log in again; or ulimit -u 65536"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "Soft \"Max processes\" of /proc/self/limits against 64 a local rank (own "
                "threshold). It counts all processes and threads of the user on the machine, in "
                "other containers too. It does not apply to root. Fails where a child process "
                "could not be "
                "started. The container's own limit: "
                "cgroup-pids.",
     .refs = {GETRLIMIT}},
    {.id = "core-pattern",
     .code = "HVD2108",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "/proc/sys",
     .run = check_core_pattern,
     .title = "core files of crashed ranks",
     .why =
         "Cores of ranks that hold GPU memory maps are large: a crash of all ranks fills a disk.",
     .fix = {"docker run --ulimit core=0 ...", NULL, "ulimit -c 0"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "/proc/sys/kernel/core_pattern and \"Max core file size\". A pattern that begins with "
         "| is a program of the host.",
     .refs = {"https://man7.org/linux/man-pages/man5/core.5.html"}},
};

const struct check_table checks_limits = {rows, sizeof(rows) / sizeof(*rows)};
