/* SPDX-License-Identifier: Apache-2.0
 *
 * sandbox: what the container forbids to ranks: system calls that are refused, namespaces that are
 * not shared, a missing /sys.
 *
 * Reads the answers "sandbox" and "ranks". Pure functions, run by doctor.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/proc.h"
#include "diagnostics/rules.h"

static void check_cma(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "sandbox");
    if (!result_needs(r, a, "process_vm_readv"))
        return;
    int error = (int)answer_int(a, "cma", -1);
    if (error < 0) {
        result_skip(r, "process_vm_readv was not tried");
        return;
    }
    result_observed(r, "%s", error ? strerrorname_np(error) : "ok");
    result_expected(r, "ok");
    if (error == 0)
        result_pass(r, "ranks can read each other's memory (process_vm_readv)");
    else if (error == ENOSYS)
        result_warn(r, "process_vm_readv is not there (ENOSYS): a seccomp filter, gVisor or the "
                       "kernel");
    else
        result_warn(r, "process_vm_readv is refused (%s): seccomp or a missing CAP_SYS_PTRACE",
                    strerrorname_np(error));
}

/* NCCL 2.24 to 2.26.4 fails when mbind is refused; an unknown version may be one of them. */
static bool nccl_needs_mbind(const struct machine *m)
{
    const char *version = answer_str(machine_answer(m, "nccl"), "version", NULL);
    return !version ||
           (version_compare(version, "2.24") >= 0 && version_compare(version, "2.26.4") <= 0);
}

static void check_mbind(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "sandbox");
    if (!result_needs(r, a, "mbind"))
        return;
    int error = (int)answer_int(a, "mbind", -1);
    if (error < 0) {
        result_skip(r, "mbind was not tried");
        return;
    }
    result_observed(r, "%s", error ? strerrorname_np(error) : "ok");
    result_expected(r, "ok");
    if (error == 0)
        result_pass(r, "memory can be bound to a NUMA node (mbind)");
    else if (error == ENOSYS)
        result_info(r, "mbind is not there (ENOSYS): no NUMA placement, none needed on one node");
    else if (v->setting->profiles & PROFILE_GPU && nccl_needs_mbind(v->machine))
        result_warn(r,
                    "mbind is refused (%s): NCCL 2.24 to 2.26.4 ends here, others place memory "
                    "anywhere",
                    strerrorname_np(error));
    else
        result_info(r,
                    "mbind is refused (%s): \"numactl --membind\" and MPI's binding of memory do "
                    "not work",
                    strerrorname_np(error));
}

static void check_io_uring(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "sandbox");
    if (!result_needs(r, a, "io_uring"))
        return;
    int error = (int)answer_int(a, "io_uring", -1);
    if (error < 0) {
        result_skip(r, "io_uring was not tried");
        return;
    }
    result_observed(r, "%s", error ? strerrorname_np(error) : "ok");
    if (error == 0)
        result_pass(r, "io_uring works");
    else if (error == ENOSYS)
        result_info(r, "no io_uring (ENOSYS): data loaders that want it use threads instead");
    else if (error == EPERM || error == EACCES)
        result_info(r,
                    "io_uring is refused (%s), as Docker's default profile does: data loaders "
                    "that want it use threads instead",
                    strerrorname_np(error));
    else
        result_info(r, "io_uring does not work: %s", strerror(error));
}

/* The first rank before i that belongs to the same job and whose key is known; -1: none. */
static int mate(const struct answer *a, const char *key, int i)
{
    const char *job = answer_str_at(a, "rank", i, "job", "");
    for (int k = 0; k < i; k++)
        if (answer_str_at(a, "rank", k, key, NULL) &&
            strcmp(answer_str_at(a, "rank", k, "job", ""), job) == 0)
            return k;
    return -1;
}

struct pair {
    int a, b; /* the first two ranks of one job that differ; -1: none do */
};

/* Compares the ranks of each job by key. Returns how many ranks were compared. */
static int differ(const struct answer *a, const char *key, struct pair *ret)
{
    int n = answer_count(a, "rank"), seen = 0;
    *ret = (struct pair){-1, -1};
    for (int i = 0; i < n; i++) {
        const char *ns = answer_str_at(a, "rank", i, key, NULL);
        int k = ns ? mate(a, key, i) : -1;
        if (k < 0)
            continue;
        seen += seen ? 1 : 2;
        if (ret->b < 0 && strcmp(answer_str_at(a, "rank", k, key, ""), ns) != 0)
            *ret = (struct pair){k, i};
    }
    return seen;
}

static bool two_ranks(const struct view *v, struct result *r, const struct answer **ret)
{
    *ret = machine_answer(v->machine, "ranks");
    if (!result_needs(r, *ret, "the ranks that run here"))
        return false;
    struct pair other;
    if (differ(*ret, "user", &other) >= 2)
        return true;
    result_skip(r, "fewer than two ranks of one job that this user may look at run here: run the "
                   "check again while the job runs");
    return false;
}

static void check_userns(const struct view *v, struct result *r)
{
    const struct answer *a;
    struct pair two;
    if (!two_ranks(v, r, &a))
        return;
    int seen = differ(a, "user", &two);
    result_observed(r, "%s", two.b < 0 ? "same" : "different");
    result_expected(r, "same");
    if (two.b < 0)
        result_pass(r, "%d ranks in one user namespace", seen);
    else
        result_warn(r, "ranks %s and %s (processes %s and %s) are in different user namespaces",
                    answer_str_at(a, "rank", two.a, "rank", "?"),
                    answer_str_at(a, "rank", two.b, "rank", "?"),
                    answer_str_at(a, "rank", two.a, "pid", "?"),
                    answer_str_at(a, "rank", two.b, "pid", "?"));
}

static void check_pid_ipc(const struct view *v, struct result *r)
{
    const struct answer *a;
    struct pair pid, ipc;
    if (!two_ranks(v, r, &a))
        return;
    int seen = differ(a, "pidns", &pid);
    differ(a, "ipc", &ipc);
    result_observed(r, "%s pid, %s ipc", pid.b < 0 ? "same" : "different",
                    ipc.b < 0 ? "same" : "different");
    result_expected(r, "same pid, same ipc");
    struct pair two = pid.b >= 0 ? pid : ipc;
    const char *what = pid.b < 0 ? "IPC" : ipc.b < 0 ? "PID" : "PID and IPC";
    if (two.b < 0)
        result_pass(r, "%d ranks share their PID and IPC namespaces", seen);
    else
        result_warn(r, "ranks %s and %s do not share their %s namespace%s",
                    answer_str_at(a, "rank", two.a, "rank", "?"),
                    answer_str_at(a, "rank", two.b, "rank", "?"), what,
                    pid.b >= 0 && ipc.b >= 0 ? "s" : "");
}

static void check_sys(const struct view *v, struct result *r)
{
    static const char *const wanted[] = {"sys/devices/system/cpu", "sys/class/net",
                                         "sys/bus/pci/devices"};
    char missing[128] = "";
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        auto_free char **names = NULL;
        size_t n = 0;
        if (machine_list(v->machine, wanted[i], &names, &n) < 0 ||
            (n == 0 && strcmp(wanted[i], "sys/class/net") == 0))
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), "%s/%s",
                     *missing ? ", " : "", wanted[i]);
    }
    result_observed(r, "%s", *missing ? missing : "all");
    result_expected(r, "/sys with processors, interfaces and PCI devices");
    if (!*missing)
        result_pass(r, "/sys is mounted");
    else if (v->setting->profiles & PROFILE_GPU)
        result_fail(r, "/sys has no %s: NCCL and hwloc cannot find the topology", missing);
    else
        result_warn(r, "/sys has no %s: the topology cannot be found", missing);
}

#define DOCKER_SECCOMP "https://docs.docker.com/engine/security/seccomp/"
#define POD_CONTEXT    "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"
#define OMPI_SM        "https://docs.open-mpi.org/en/v5.0.x/tuning-apps/networking/shared-memory.html"

static const struct check rows[] = {
    {.id = "cap-sys-ptrace",
     .code = "HVD2201",
     .group = GROUP_LIMITS,
     .level = 1,
     .probes = {"sandbox"},
     .run = check_cma,
     .title = "ranks may read each other's memory",
     .why = "Open MPI and UCX copy large messages between local ranks with it. Refused: \"Read -1, "
            "expected 8192, errno = 1\" on every message, or a hang. hvd and NCCL do not use it.",
     .fix = {"docker run --cap-add=SYS_PTRACE ...; or -e OMPI_MCA_btl_vader_single_copy_mechanism="
             "none (Open MPI 5: OMPI_MCA_smsc=^cma) -e UCX_TLS=^cma",
             "securityContext: {capabilities: {add: [SYS_PTRACE]}}; or env: "
             "OMPI_MCA_btl_vader_single_copy_mechanism=none",
             "see ptrace-scope"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "A child reads four bytes of another child that allows it (PR_SET_PTRACER_ANY), as "
                "MPI's ranks do. EPERM: Docker's default seccomp profile before 19.03 or on Linux "
                "before 4.8. btl_vader became btl_sm in Open MPI 5.",
     .refs = {OMPI_SM, DOCKER_SECCOMP,
              "https://man7.org/linux/man-pages/man2/process_vm_readv.2.html"}},
    {.id = "cap-sys-nice-numa",
     .code = "HVD2202",
     .group = GROUP_LIMITS,
     .level = 1,
     .probes = {"sandbox", "nccl"},
     .run = check_mbind,
     .title = "memory can be bound to a node",
     .why =
         "Docker's seccomp profile refuses mbind without CAP_SYS_NICE. NCCL 2.24 to 2.26.4 takes "
         "that for an error when it allocates shared memory and ends.",
     .fix = {"docker run --cap-add=SYS_NICE ...",
             "securityContext: {capabilities: {add: [SYS_NICE]}}", NULL},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "mbind(MPOL_PREFERRED, node 0) of one page in a child. EPERM comes from seccomp. "
                "NCCL 2.26.5 and later go on without.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/release-notes/", DOCKER_SECCOMP}},
    {.id = "userns-same",
     .code = "HVD2203",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "ranks of the same user that run now",
     .probes = {"ranks"},
     .run = check_userns,
     .title = "local ranks in one user namespace",
     .why = "Between user namespaces process_vm_readv is refused: Open MPI's shared memory ends or "
            "falls back to two copies.",
     .fix = {"one container for all ranks of a machine; not --userns of its own for each",
             "one pod a node with all its ranks; not hostUsers: false for some of them",
             "export OMPI_MCA_btl_vader_single_copy_mechanism=none"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "/proc/PID/ns/user of processes with HVD_RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK or "
                "SLURM_PROCID in their environment.",
     .refs = {OMPI_SM, "https://man7.org/linux/man-pages/man7/user_namespaces.7.html"}},
    {.id = "pid-ipc-ns-shared",
     .code = "HVD2204",
     .group = GROUP_LIMITS,
     .level = 1,
     .needs = "ranks of the same user that run now",
     .probes = {"ranks"},
     .run = check_pid_ipc,
     .title = "local ranks share PID and IPC namespaces",
     .why = "Ranks in containers of their own on one machine do not see each other's /dev/shm and "
            "process numbers: NCCL and MPI go through the network instead, or fail to open a "
            "segment.",
     .fix = {"one container for all ranks of a machine; or --ipc=host --pid=host for each",
             "one pod a node with all its ranks; or hostIPC: true and hostPID: true", NULL},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "/proc/PID/ns/pid and ns/ipc of processes with a rank in their environment. Ranks in "
         "other PID namespaces are only seen from the machine's own.",
     .refs = {"https://man7.org/linux/man-pages/man7/namespaces.7.html"}},
    {.id = "sys-mounted",
     .code = "HVD2205",
     .group = GROUP_LIMITS,
     .level = 1,
     .run = check_sys,
     .title = "/sys is mounted",
     .why =
         "NCCL and hwloc read processors, PCI switches and interfaces from /sys. Without it NCCL "
         "takes the slowest paths or ends with an internal error.",
     .fix = {"docker run -v /sys:/sys:ro ...", "a runtime that mounts /sys (all usual ones do)",
             "mount -t sysfs sysfs /sys"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "/sys/devices/system/cpu, /sys/class/net and /sys/bus/pci/devices can be listed. "
                "Read-only is fine.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"}},
    {.id = "seccomp-io-uring",
     .code = "HVD2206",
     .group = GROUP_LIMITS,
     .level = 1,
     .probes = {"sandbox"},
     .run = check_io_uring,
     .title = "io_uring",
     .why = "Some data loaders and storage clients read with io_uring and are slower without it.",
     .fix = {"docker run --security-opt seccomp=PROFILE.json ... with io_uring_* allowed",
             "securityContext: {seccompProfile: {type: Localhost, localhostProfile: PROFILE.json}}",
             "sysctl -w kernel.io_uring_disabled=0"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "io_uring_setup in a child. Docker and containerd refuse it by default.",
     .refs = {DOCKER_SECCOMP, "https://docs.kernel.org/admin-guide/sysctl/kernel.html"}},
};

const struct check_table checks_sandbox = {rows, sizeof(rows) / sizeof(*rows)};
