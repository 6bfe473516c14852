/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: does the machine have memory left, does it swap, and is there a place for temporary
 * files? The container's own limit is checks/cgroup.c, shared memory checks/shm.c.
 *
 * Reads /proc and the answers "vmstat" and "disk-tmp". Pure functions, run by doctor.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/proc.h"

#define MIB UINT64_C(1048576)
#define GIB (1024 * MIB)

#define TMP_WANTED UINT64_C(500000000)
#define TMP_LEAST  (16 * MIB)
#define TMP_PATH   60
#define SUN_PATH   108

/* A value of /proc/meminfo in bytes; -1: it is missing. */
static int64_t meminfo(const struct view *v, const char *key)
{
    int64_t kib;
    if (machine_field_int(v->machine, "proc/meminfo", key, &kib) < 0 || kib < 0 ||
        kib > INT64_MAX / 1024)
        return -1;
    return kib * 1024;
}

static void check_available(const struct view *v, struct result *r)
{
    int64_t total = meminfo(v, "MemTotal"), left = meminfo(v, "MemAvailable");
    uint64_t want = (uint64_t)v->setting->local_ranks * GIB;
    char a[32], b[32];
    if (total <= 0 || left < 0) {
        result_skip(r, "/proc/meminfo has no MemAvailable");
        return;
    }
    double percent = 100.0 * (double)left / (double)total;
    check_bytes(a, sizeof(a), (uint64_t)left);
    check_bytes(b, sizeof(b), (uint64_t)total);
    result_observed(r, "%lld", (long long)left);
    result_expected(r, ">= 10 %% and >= %llu", (unsigned long long)want);
    if (percent < 2 || (uint64_t)left < 256 * MIB)
        result_fail(r, "%s of the machine's %s are available (%.0f %%)", a, b, percent);
    else if (percent < 10)
        result_warn(r, "%s of the machine's %s are available (%.0f %%)", a, b, percent);
    else if ((uint64_t)left < want && !proc_ranks_run(v->machine, v->setting->local_ranks))
        result_warn(r, "%s of the machine's %s are available, less than 1 GiB for each of %d ranks",
                    a, b, v->setting->local_ranks);
    else
        result_pass(r, "%s of the machine's %s are available", a, b);
}

static void check_swap(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "vmstat");
    int64_t total = meminfo(v, "SwapTotal"), left = meminfo(v, "SwapFree");
    char used[32], all[32];
    if (total == 0) {
        result_pass(r, "no swap");
        return;
    }
    if (!result_needs(r, a, "swapping"))
        return;
    int64_t in = answer_int(a, "swap_in", -1), out = answer_int(a, "swap_out", -1);
    int64_t ms = answer_int(a, "ms", 0);
    if (in < 0 || out < 0 || total < 0 || left < 0) {
        result_skip(r, "/proc/vmstat does not count swapping");
        return;
    }
    check_bytes(used, sizeof(used), (uint64_t)(total > left ? total - left : 0));
    check_bytes(all, sizeof(all), (uint64_t)total);
    result_observed(r, "%lld in, %lld out", (long long)in, (long long)out);
    result_expected(r, "0 in, 0 out");
    if (in > 0 || out > 0)
        result_warn(r, "the machine swaps: %lld pages in, %lld out within %lld ms; %s of %s in use",
                    (long long)in, (long long)out, (long long)ms, used, all);
    else if (total - left > total / 10)
        result_info(r, "%s of %s swap in use, no swapping within %lld ms", used, all,
                    (long long)ms);
    else
        result_pass(r, "no swapping within %lld ms, %s of %s in use", (long long)ms, used, all);
}

static void check_overcommit(const struct view *v, struct result *r)
{
    int64_t mode, limit = meminfo(v, "CommitLimit"), used = meminfo(v, "Committed_AS");
    char a[32], b[32];
    int rc = machine_int(v->machine, &mode, "proc/sys/vm/overcommit_memory");
    if (rc < 0) {
        result_skip(r, "/proc/sys/vm/overcommit_memory: %s", strerror(-rc));
        return;
    }
    result_observed(r, "%lld", (long long)mode);
    result_expected(r, "0 or 1");
    if (mode != 2) {
        result_pass(r, "vm.overcommit_memory=%lld", (long long)mode);
        return;
    }
    check_bytes(a, sizeof(a), used < 0 ? 0 : (uint64_t)used);
    check_bytes(b, sizeof(b), limit < 0 ? 0 : (uint64_t)limit);
    result_warn(r,
                "vm.overcommit_memory=2: reserved but unused memory counts; %s of %s are reserved",
                a, b);
}

static void check_hugepages(const struct view *v, struct result *r)
{
    int64_t pages, unused, size = meminfo(v, "Hugepagesize"), total = meminfo(v, "MemTotal");
    char each[32], all[32];
    if (machine_field_int(v->machine, "proc/meminfo", "HugePages_Total", &pages) < 0 ||
        machine_field_int(v->machine, "proc/meminfo", "HugePages_Free", &unused) < 0 || size <= 0) {
        result_skip(r, "/proc/meminfo has no figures of huge pages");
        return;
    }
    check_bytes(each, sizeof(each), (uint64_t)size);
    result_observed(r, "%lld of %lld", (long long)unused, (long long)pages);
    if (pages <= 0) {
        result_pass(r, "no huge pages are reserved");
        return;
    }
    double bytes = (double)pages * (double)size;
    check_bytes(all, sizeof(all), bytes < 9e18 ? (uint64_t)bytes : UINT64_MAX);
    if (total > 0 && bytes > (double)total / 2 && unused > pages / 2)
        result_warn(r,
                    "%lld huge pages of %s hold %s, more than half of memory, and %lld are not "
                    "used",
                    (long long)pages, each, all, (long long)unused);
    else
        result_info(r, "%lld huge pages of %s are reserved (%s), %lld are free", (long long)pages,
                    each, all, (long long)unused);
}

static void check_tmp_space(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "disk-tmp");
    char left[32];
    if (!result_needs(r, a, "the temporary folder"))
        return;
    const char *path = answer_str(a, "path", "/tmp");
    int error = (int)answer_int(a, "errno", 0);
    int64_t room = answer_int(a, "free", -1);
    if (error) {
        result_fail(r, "%s: %s", path, strerror(error));
        result_observed(r, "%s", strerrorname_np(error));
        return;
    }
    if (room < 0) {
        result_skip(r, "%s: the file system does not report its size", path);
        return;
    }
    check_bytes(left, sizeof(left), (uint64_t)room);
    result_observed(r, "%lld", (long long)room);
    result_expected(r, ">= %llu", (unsigned long long)TMP_WANTED);
    if ((uint64_t)room < TMP_LEAST)
        result_fail(r, "%s has %s left", path, left);
    else if ((uint64_t)room < TMP_WANTED)
        result_warn(r, "%s has %s left, less than 500 MB", path, left);
    else
        result_pass(r, "%s has %s left", path, left);
}

static void check_tmp_path(const struct view *v, struct result *r)
{
    static const char *const names[] = {"OMPI_MCA_orte_tmpdir_base", "OMPI_MCA_prte_tmpdir_base",
                                        "PMIX_SERVER_TMPDIR", "TMPDIR"};
    const char *longest = "/tmp", *name = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = machine_env(v->machine, names[i]);
        if (value && *value && (!name || strlen(value) > strlen(longest))) {
            longest = value;
            name = names[i];
        }
    }
    size_t len = strlen(longest);
    result_observed(r, "%zu", len);
    result_expected(r, "<= %d", TMP_PATH);
    if (len > TMP_PATH)
        result_warn(r, "%s has %zu characters: a socket in a folder below it may not fit into %d",
                    name, len, SUN_PATH);
    else
        result_pass(r, "the path of the temporary folder has %zu characters", len);
}

#define VM_DOC "https://docs.kernel.org/admin-guide/sysctl/vm.html"

static const struct check rows[] = {
    {.id = "mem-available",
     .code = "HVD3101",
     .group = GROUP_MEMORY,
     .level = 1,
     .needs = "/proc",
     .probes = {"ranks"},
     .run = check_available,
     .title = "available memory of the machine",
     .why = "When the machine runs out of memory, the kernel kills a process: usually the largest, "
            "which is a rank.",
     .fix = {"docker stats shows which container holds it",
             "kubectl top pod -A --sort-by=memory; kubectl "
             "describe node",
             "ps -eo pid,user,rss,comm --sort=-rss | head"},
     .action = ACTION_FREE_SPACE,
     .explain =
         "MemAvailable of /proc/meminfo: the machine's, in a container too (its own limit: "
         "cgroup-mem-limit). Less than 10 % or 1 GiB a local rank warns, less than 2 % or 256 "
         "MiB fails (own thresholds).",
     .refs = {"https://docs.kernel.org/filesystems/proc.html"}},
    {.id = "swap-activity",
     .code = "HVD3102",
     .group = GROUP_MEMORY,
     .level = 1,
     .needs = "/proc",
     .probes = {"vmstat"},
     .run = check_swap,
     .title = "no swapping",
     .why =
         "A rank that waits for its own memory from disk is a straggler: every step of all ranks "
         "takes as long as its slowest.",
     .fix = {"docker run --memory=64g --memory-swap=64g ... (the container then never swaps)",
             "smaller requests on this node; kubectl top pod -A --sort-by=memory",
             "swapoff -a, or sysctl -w vm.swappiness=1; find the process that needs the memory"},
     .action = ACTION_FREE_SPACE,
     .explain = "pswpin and pswpout of /proc/vmstat, read twice within 200 ms: any growth warns. "
                "More than 10 % of swap in use without growth is information. The agent's watch "
                "observes for longer.",
     .refs = {VM_DOC}},
    {.id = "overcommit",
     .code = "HVD3103",
     .group = GROUP_MEMORY,
     .level = 1,
     .needs = "/proc/sys",
     .run = check_overcommit,
     .title = "memory overcommit is allowed",
     .why = "CUDA and NCCL reserve hundreds of gigabytes of addresses that they never touch; with "
            "strict accounting that fails with \"Cannot allocate memory\", and so does fork.",
     .fix = {NULL, "as on a host, on the node", "sysctl -w vm.overcommit_memory=0"},
     .action = ACTION_HOST,
     .explain = "/proc/sys/vm/overcommit_memory: 2 warns, 0 and 1 are good.",
     .refs = {VM_DOC, "https://docs.kernel.org/mm/overcommit-accounting.html"}},
    {.id = "hugepages-free",
     .code = "HVD3104",
     .group = GROUP_MEMORY,
     .level = 1,
     .needs = "/proc",
     .run = check_hugepages,
     .title = "reserved huge pages",
     .why = "Only programs that ask for huge pages can use the reserved ones. A program that asks "
            "and finds none free falls back to small pages or fails.",
     .fix = {NULL, "resources: {limits: {hugepages-2Mi: 1Gi}} for the pod that uses them",
             "sysctl -w vm.nr_hugepages=0 gives them back"},
     .action = ACTION_HOST,
     .explain =
         "HugePages_Total and HugePages_Free of /proc/meminfo. Warns where they hold more than "
         "half of memory and most are unused (own threshold).",
     .refs = {"https://docs.kernel.org/admin-guide/mm/hugetlbpage.html"}},
    {.id = "tmpdir-space",
     .code = "HVD3105",
     .group = GROUP_MEMORY,
     .level = 1,
     .probes = {"disk-tmp"},
     .run = check_tmp_space,
     .title = "room for temporary files",
     .why =
         "Compilers (torch.compile, Triton), Open MPI's session folder and Python's spooled files "
         "go there; without room they fail in the middle of a run.",
     .fix = {"docker run -v /large/disk:/tmp ..., or -e TMPDIR=/large",
             "volumes: [{name: tmp, emptyDir: {}}], volumeMounts: [{name: tmp, mountPath: /tmp}]",
             "export TMPDIR=/large/disk; du -xh /tmp | sort -h | tail"},
     .action = ACTION_FREE_SPACE,
     .explain = "statvfs of TMPDIR or /tmp. Less than 500 MB warns, less than 16 MiB fails (own "
                "thresholds).",
     .refs = {"https://docs.python.org/3/library/tempfile.html"}},
    {.id = "tmpdir-path-len",
     .code = "HVD3106",
     .group = GROUP_MEMORY,
     .level = 1,
     .run = check_tmp_path,
     .title = "short path of the temporary folder",
     .why =
         "PMIx and Open MPI make a Unix socket some folders below it, and its path must fit into "
         "108 bytes: \"temporary directory name that results in a path that is too long\".",
     .fix = {"docker run -e TMPDIR=/tmp ...", "env: [{name: TMPDIR, value: /tmp}]",
             "export TMPDIR=/tmp"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "The longest of TMPDIR, PMIX_SERVER_TMPDIR and Open MPI's tmpdir_base. More than 60 "
         "characters warns: user name, host name, job number and socket follow (own "
         "threshold).",
     .refs = {"https://man7.org/linux/man-pages/man7/unix.7.html"}},
};

const struct check_table checks_memory = {rows, sizeof(rows) / sizeof(*rows)};
