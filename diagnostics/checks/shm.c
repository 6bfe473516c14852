/* SPDX-License-Identifier: Apache-2.0
 *
 * shm: is there enough shared memory for NCCL, MPI and DataLoader workers, and is it kept while a
 * job runs?
 *
 * Reads the answers "shm" and "shm-files". hvd's own engine does not use /dev/shm. Pure functions,
 * run by doctor.c.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/cleanup.h"
#include "diagnostics/cgroup.h"
#include "diagnostics/check.h"
#include "diagnostics/proc.h"

#define MIB UINT64_C(1048576)
#define GIB (1024 * MIB)

#define DOCKER_DEFAULT (64 * MIB)
#define PODMAN_DEFAULT UINT64_C(65536000)
#define NCCL_CHANNEL   (10 * MIB)
#define CHANNELS       2

struct shm {
    uint64_t total, left;
    bool unlimited;
};

/* Returns false when the size is unknown; the result is set. */
static bool shm_read(const struct view *v, struct result *r, struct shm *ret)
{
    const struct answer *a = machine_answer(v->machine, "shm");
    if (a->state == ANSWER_FAILED && a->detail == ENOENT) {
        result_fail(r, "there is no /dev/shm");
        result_observed(r, "none");
        result_expected(r, "a tmpfs on /dev/shm");
        return false;
    }
    if (!result_needs(r, a, "/dev/shm"))
        return false;
    int64_t total = answer_int(a, "total", -1), left = answer_int(a, "free", -1);
    if (total < 0 || left < 0) {
        result_skip(r, "the size of /dev/shm is not known");
        return false;
    }
    *ret = (struct shm){(uint64_t)total, (uint64_t)left, answer_int(a, "unlimited", 0) == 1};
    return true;
}

static bool one_rank(const struct setting *s)
{
    return s->ranks == 1 || (s->gpus == 1 && s->local_ranks == 1);
}

static const char *whose_default(uint64_t total)
{
    return total == DOCKER_DEFAULT   ? ", Docker's default"
           : total == PODMAN_DEFAULT ? ", podman's default"
                                     : "";
}

static void check_size(const struct view *v, struct result *r)
{
    const struct setting *s = v->setting;
    struct shm shm;
    char size[32];
    if (!shm_read(v, r, &shm))
        return;
    result_observed(r, "%llu", (unsigned long long)shm.total);
    result_expected(r, ">= %llu", (unsigned long long)GIB);
    check_bytes(size, sizeof(size), shm.total);
    if (shm.unlimited)
        result_pass(r, "/dev/shm has no limit of its own");
    else if (shm.total >= GIB)
        result_pass(r, "/dev/shm has %s", size);
    else if (shm.total <= DOCKER_DEFAULT && s->profiles & PROFILE_GPU && !one_rank(s))
        result_fail(r, "/dev/shm has %s%s: NCCL and DataLoader workers need more", size,
                    whose_default(shm.total));
    else if (shm.total <= DOCKER_DEFAULT)
        result_warn(r, "/dev/shm has %s%s: DataLoader workers%s need more", size,
                    whose_default(shm.total), s->local_ranks > 1 ? " and MPI" : "");
    else
        result_warn(r, "/dev/shm has %s, less than 1 GiB", size);
}

/* Bytes of /dev/shm that NCCL takes between this machine's ranks when they have no faster path. */
static uint64_t wanted(const struct view *v, int *ret_channels)
{
    const char *names[] = {"NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"};
    long channels = CHANNELS;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = machine_env(v->machine, names[i]);
        long n = value ? strtol(value, NULL, 10) : 0;
        if (n >= 1 && n <= 64 && (i == 0 ? n > channels : n < channels))
            channels = n;
    }
    *ret_channels = (int)channels;
    return (uint64_t)v->setting->local_ranks * NCCL_CHANNEL * (uint64_t)channels;
}

static void check_free(const struct view *v, struct result *r)
{
    struct shm shm;
    char left[32], size[32], want[32];
    int channels = CHANNELS;
    if (!shm_read(v, r, &shm))
        return;
    bool gpu = v->setting->profiles & PROFILE_GPU;
    uint64_t need =
        gpu && !proc_ranks_run(v->machine, v->setting->local_ranks) ? wanted(v, &channels) : 0;
    if (need < DOCKER_DEFAULT)
        need = DOCKER_DEFAULT;
    result_observed(r, "%llu", (unsigned long long)shm.left);
    result_expected(r, ">= %llu", (unsigned long long)need);
    check_bytes(left, sizeof(left), shm.left);
    check_bytes(size, sizeof(size), shm.total);
    check_bytes(want, sizeof(want), need);
    if (shm.unlimited)
        result_pass(r, "/dev/shm has no limit of its own");
    else if (shm.total <= DOCKER_DEFAULT && shm.left >= shm.total / 2)
        result_info(r, "%s of %s free in /dev/shm; its total size is too small: see shm-size", left,
                    size);
    else if (shm.left < DOCKER_DEFAULT && gpu)
        result_fail(r, "only %s of %s free in /dev/shm", left, size);
    else if (shm.left < DOCKER_DEFAULT)
        result_warn(r, "only %s of %s free in /dev/shm", left, size);
    else if (shm.left < need)
        result_warn(r,
                    "%s of %s free in /dev/shm; NCCL between %d ranks with %d channels takes "
                    "about %s",
                    left, size, v->setting->local_ranks, channels, want);
    else
        result_pass(r, "%s of %s free in /dev/shm", left, size);
}

static void check_fallocate(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "shm");
    struct shm shm;
    char size[32];
    if (a->state == ANSWER_CRASHED) {
        result_fail(r, "/dev/shm has free space, but writing to it failed: the trial %s",
                    a->detail == 7 ? "ended in SIGBUS" : "crashed");
        return;
    }
    if (!shm_read(v, r, &shm))
        return;
    check_bytes(size, sizeof(size), (uint64_t)answer_int(a, "alloc_bytes", 16 << 20));
    const char *untried = answer_str(a, "untried", NULL);
    int error = (int)answer_int(a, "alloc", -1);
    if (untried || error < 0) {
        result_skip(r, "did not try to allocate %s: %s", size, untried ? untried : "no answer");
        return;
    }
    result_observed(r, "%s", error ? strerrorname_np(error) : "ok");
    result_expected(r, "ok");
    if (error == 0)
        result_pass(r, "%s in /dev/shm allocated, written and freed", size);
    else if (error == ENOSPC)
        result_fail(r, "%s cannot be allocated in /dev/shm: no space left", size);
    else
        result_fail(r, "%s cannot be allocated in /dev/shm: %s", size, strerror(error));
}

static void check_type(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "shm");
    struct shm shm;
    if (!shm_read(v, r, &shm))
        return;
    const char *type = answer_str(a, "type", "?"), *mode = answer_str(a, "mode", "?");
    result_observed(r, "%s %s", type, mode);
    result_expected(r, "tmpfs 1777");
    if (answer_int(a, "readonly", 0) == 1)
        result_fail(r, "/dev/shm is mounted read-only");
    else if (answer_int(a, "writable", 1) == 0)
        result_fail(r, "/dev/shm (%s, mode %s) is not writable for user %lld", type, mode,
                    (long long)proc_uid(v->machine));
    else if (strcmp(type, "tmpfs") != 0 && strcmp(type, "ramfs") != 0)
        result_warn(r, "/dev/shm is %s, not memory: shared memory goes to a disk", type);
    else if (strcmp(mode, "1777") != 0)
        result_warn(r,
                    "/dev/shm has mode %s, not 1777: processes of other users are refused, or may "
                    "delete each other's segments",
                    mode);
    else
        result_pass(r, "/dev/shm is %s with mode %s", type, mode);
}

/* Writes the names of the first three stale segments to dst: "a, b, c", and " ..." if there are
 * more. */
static void stale_names(const struct answer *a, char *dst, size_t size)
{
    size_t at = 0;
    int n = answer_count(a, "stale");
    *dst = '\0';
    for (int i = 0; i < n && i < 3 && at < size; i++)
        at += (size_t)snprintf(dst + at, size - at, "%s%.40s", i ? ", " : "",
                               answer_str_at(a, "stale", i, "name", "?"));
    if (n > 3 && at < size)
        snprintf(dst + at, size - at, " ...");
}

static void check_stale(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "shm-files");
    struct shm shm;
    char names[160], size[32];
    if (!shm_read(v, r, &shm) || !result_needs(r, a, "the files in /dev/shm"))
        return;
    if (!answer_has(a, "stale_count")) {
        result_skip(r, "the answer about the files in /dev/shm is incomplete");
        return;
    }
    int64_t n = answer_int(a, "stale_count", 0), bytes = answer_int(a, "stale_bytes", 0);
    int64_t unknown = answer_int(a, "unknown", 0);
    stale_names(a, names, sizeof(names));
    check_bytes(size, sizeof(size), bytes > 0 ? (uint64_t)bytes : 0);
    result_observed(r, "%lld", (long long)bytes);
    result_expected(r, "<= 10 %% of %llu", (unsigned long long)shm.total);
    if (n > 0 && !shm.unlimited && (uint64_t)bytes > shm.total / 10)
        result_warn(r, "%lld segments of ended jobs hold %s of /dev/shm: %s", (long long)n, size,
                    names);
    else if (n > 0)
        result_info(r, "%lld segment%s of ended jobs, %s: %s", (long long)n, n == 1 ? "" : "s",
                    size, names);
    else if (unknown > 0)
        result_skip(r,
                    "%lld segments may belong to processes of other users: run as root, or in "
                    "their container",
                    (long long)unknown);
    else
        result_pass(r, "no leftovers of ended jobs among %lld files",
                    (long long)answer_int(a, "files", 0));
}

static void check_cgroup(const struct view *v, struct result *r)
{
    struct cgroup cg;
    struct cgroup_memory memory;
    struct shm shm;
    char size[32], limit[32];
    if (!shm_read(v, r, &shm))
        return;
    if (cgroup_find(v->machine, &cg) < 0 || cgroup_memory(v->machine, &cg, &memory) < 0) {
        result_skip(r, "the cgroup's memory limit is not visible: needs /sys/fs/cgroup");
        return;
    }
    if (memory.limit == CGROUP_NO_LIMIT) {
        result_pass(r, "no memory limit below /dev/shm's size");
        return;
    }
    check_bytes(size, sizeof(size), shm.total);
    check_bytes(limit, sizeof(limit), memory.limit);
    result_observed(r, "%llu", (unsigned long long)shm.total);
    result_expected(r, "< %llu", (unsigned long long)memory.limit);
    if (shm.unlimited || shm.total >= memory.limit)
        result_warn(r, "/dev/shm may grow to %s, but the container's memory limit is only %s",
                    shm.unlimited ? "any size" : size, limit);
    else
        result_pass(r, "/dev/shm has %s, below the memory limit of %s", size, limit);
}

/* ---- RemoveIPC ---- */

/* The value of RemoveIPC= in a file: 0 no, 1 yes, -1: not set there. */
static int remove_ipc_of(const struct machine *m, const char *path)
{
    auto_free char *text = NULL;
    int value = -1;
    if (machine_read(m, path, &text, NULL) < 0)
        return -1;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        line += strspn(line, " \t");
        if (strncmp(line, "RemoveIPC", 9) != 0)
            continue;
        line += 9 + strspn(line + 9, " \t");
        if (*line != '=')
            continue;
        line += 1 + strspn(line + 1, " \t");
        value = strchr("1yYtT", *line) && *line ? 1 : strncasecmp(line, "on", 2) == 0;
    }
    return value;
}

/* Drop-ins override logind.conf; without either systemd's default, yes, holds. */
static bool remove_ipc(const struct machine *m)
{
    static const char *const places[] = {"usr/lib/systemd/logind.conf", "etc/systemd/logind.conf"};
    static const char *const folders[] = {"usr/lib/systemd/logind.conf.d",
                                          "run/systemd/logind.conf.d", "etc/systemd/logind.conf.d"};
    int value = 1, one;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        value = (one = remove_ipc_of(m, places[i])) >= 0 ? one : value;
    for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
        auto_free char **names = NULL;
        if (machine_list(m, folders[i], &names, NULL) < 0)
            continue;
        for (size_t k = 0; names[k]; k++) {
            char path[512];
            snprintf(path, sizeof(path), "%s/%.255s", folders[i], names[k]);
            value = (one = remove_ipc_of(m, path)) >= 0 ? one : value;
        }
    }
    return value == 1;
}

/* Reads the user's name from /etc/passwd. Returns whether the user lingers: logind keeps its
 * session when the user is logged out. */
static bool lingers(const struct machine *m, int64_t uid)
{
    auto_free char *text = NULL;
    if (machine_read(m, "etc/passwd", &text, NULL) < 0)
        return false;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char name[64];
        long long id;
        if (sscanf(line, "%63[^:]:%*[^:]:%lld:", name, &id) == 2 && id == uid && !strchr(name, '/'))
            return machine_exists(m, "var/lib/systemd/linger/%s", name);
    }
    return false;
}

static void check_remove_ipc(const struct view *v, struct result *r)
{
    int64_t uid = proc_uid(v->machine);
    result_expected(r, "RemoveIPC=no");
    /* Images contain empty folders of logind; run/systemd/system exists only while systemd runs. */
    if (!machine_exists(v->machine, "run/systemd/system") ||
        !machine_exists(v->machine, "run/systemd/seats"))
        result_pass(r, "no systemd-logind here that could remove segments");
    else if (uid >= 0 && uid < 1000)
        result_pass(r, "user %lld is a system user: logind keeps its segments", (long long)uid);
    else if (!remove_ipc(v->machine))
        result_pass(r, "RemoveIPC=no in logind.conf");
    else if (lingers(v->machine, uid))
        result_pass(r, "RemoveIPC=yes, but user %lld lingers: segments stay after logging out",
                    (long long)uid);
    else
        result_warn(r,
                    "RemoveIPC=yes: when user %lld logs out, logind deletes the segments of jobs "
                    "that still run",
                    (long long)uid);
}

#define DOCKER_RUN "https://docs.docker.com/reference/cli/docker/container/run/"
#define EMPTYDIR   "https://kubernetes.io/docs/concepts/storage/volumes/#emptydir"
#define NCCL_TROUBLE                                                                               \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
#define FIX_SIZE                                                                                   \
    {                                                                                              \
        "docker run --shm-size=32g ... (or --ipc=host); compose: shm_size: 32gb",                  \
            "volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 32Gi}}], volumeMounts: "  \
            "[{name: "                                                                             \
            "shm, mountPath: /dev/shm}]; count it in the memory limit",                            \
            "mount -o remount,size=32g /dev/shm; for good: \"tmpfs /dev/shm tmpfs size=32g 0 0\" " \
            "in "                                                                                  \
            "/etc/fstab"                                                                           \
    }

static const struct check rows[] = {
    {.id = "shm-size",
     .code = "HVD3001",
     .group = GROUP_MEMORY,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"shm"},
     .run = check_size,
     .title = "size of /dev/shm",
     .why = "NCCL ends with \"unhandled system error\" (\"failed to extend /dev/shm/nccl-...\"), "
            "DataLoader workers die with \"Bus error\". The container's memory is not the cause.",
     .fix = FIX_SIZE,
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "statvfs of /dev/shm. 64 MiB is Docker's default: fails in GPU jobs of more than one "
         "rank, warns elsewhere (hvd's own engine passes memory by descriptor and does not "
         "use /dev/shm). Less than 1 GiB warns (own threshold). A good size is one GPU's "
         "memory.",
     .refs = {NCCL_TROUBLE, DOCKER_RUN, EMPTYDIR}},
    {.id = "shm-free",
     .code = "HVD3002",
     .group = GROUP_MEMORY,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"shm", "ranks"},
     .run = check_free,
     .title = "free space in /dev/shm",
     .why = "NCCL and DataLoader workers share what is left; when it is used up they end with \"No "
            "space left on device\" or \"Bus error\".",
     .fix = {"docker restart NAME (empties it), or a larger --shm-size",
             "delete the pod (empties it), or a larger sizeLimit of the emptyDir at /dev/shm",
             "ls -lS /dev/shm; fuser -v /dev/shm/* shows who uses what; rm what nobody uses"},
     .action = ACTION_FREE_SPACE,
     .explain =
         "statvfs of /dev/shm. Less than 64 MiB free fails in GPU jobs. There it also warns "
         "below local ranks x channels x 10 MiB, about what NCCL takes for a peer and channel "
         "(channels: NCCL_MIN_NCHANNELS, NCCL_MAX_NCHANNELS, else 2; own threshold).",
     .refs = {NCCL_TROUBLE}},
    {.id = "shm-fallocate",
     .code = "HVD3003",
     .group = GROUP_MEMORY,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"shm"},
     .run = check_fallocate,
     .title = "shared memory can be allocated",
     .why = "The size of a tmpfs does not reserve memory: with a memory limit, a quota or a full "
            "machine a page may be missing, and the process that touches it dies with SIGBUS.",
     .fix = {"docker run --shm-size=32g --memory=... large enough for both",
             "raise resources.limits.memory: pages in /dev/shm count in it",
             "free memory, or see shm-free and shm-fstype-perm"},
     .action = ACTION_FREE_SPACE,
     .explain =
         "In a child process: a nameless file (O_TMPFILE) of 16 MiB is allocated, touched and "
         "closed. Not tried where the memory limit or the machine leaves less than 64 MiB.",
     .refs = {"https://docs.kernel.org/filesystems/tmpfs.html"}},
    {.id = "shm-fstype-perm",
     .code = "HVD3004",
     .group = GROUP_MEMORY,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"shm"},
     .run = check_type,
     .title = "/dev/shm is writable memory",
     .why = "With segments on a disk every step waits for the disk. Without write permission "
            "shm_open() fails, and NCCL, MPI and DataLoader workers with it.",
     .fix = {"docker run --tmpfs /dev/shm:rw,exec,size=32g,mode=1777 ... (or just --shm-size=32g)",
             "emptyDir: {medium: Memory} mounted at /dev/shm, not a disk volume",
             "mount -t tmpfs -o mode=1777 tmpfs /dev/shm; chmod 1777 /dev/shm"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "statfs, stat and access of /dev/shm: tmpfs with mode 1777, writable for this user.",
     .refs = {"https://man7.org/linux/man-pages/man7/shm_overview.7.html"}},
    {.id = "shm-stale",
     .code = "HVD3005",
     .group = GROUP_MEMORY,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"shm", "shm-files"},
     .run = check_stale,
     .title = "leftovers of ended jobs",
     .why = "Jobs that are killed leave segments behind. They hold memory until somebody deletes "
            "them, and the next job finds /dev/shm full.",
     .fix =
         {"docker restart NAME", "delete the pod",
          "rm /dev/shm/nccl-* /dev/shm/torch_* /dev/shm/vader_segment* (only while no job runs)"},
     .action = ACTION_FREE_SPACE,
     .explain =
         "Files nccl-*, torch_*, psm_*, vader_segment*, sm_segment*, ucx_shm*, psm2_shm*, "
         "mpich_shar_*, Intel_MPI_* that no process in /proc has mapped or open. More than 10 "
         "% of /dev/shm warns. Processes of other containers that share /dev/shm are not "
         "seen from here: look before you delete.",
     .refs = {NCCL_TROUBLE}},
    {.id = "shm-vs-cgroup",
     .code = "HVD3006",
     .group = GROUP_MEMORY,
     .level = 1,
     .profiles = PROFILE_CPU | PROFILE_GPU,
     .probes = {"shm"},
     .run = check_cgroup,
     .title = "/dev/shm fits the memory limit",
     .why =
         "Pages in /dev/shm count as the container's memory. When they reach its limit first, the "
         "kernel kills a process instead of saying that there is no space.",
     .fix = {"docker run --memory=64g --shm-size=32g ... (memory larger than shm)",
             "emptyDir: {medium: Memory, sizeLimit: 32Gi} with resources: {limits: {memory: 64Gi}}",
             "mount -o remount,size=... /dev/shm below the cgroup's limit"},
     .action = ACTION_CONTAINER_OPTION,
     .explain =
         "Size of /dev/shm against the smallest memory limit from the process's cgroup up to "
         "the top that is visible.",
     .refs = {EMPTYDIR, "https://docs.kernel.org/admin-guide/cgroup-v2.html"}},
    {.id = "removeipc",
     .code = "HVD3007",
     .group = GROUP_MEMORY,
     .level = 1,
     .run = check_remove_ipc,
     .title = "logind does not delete segments",
     .why = "With RemoveIPC=yes systemd-logind deletes a user's files in /dev/shm when the last "
            "session ends: \"unlink shared memory /dev/shm/nccl-... failed: No such file\".",
     .fix =
         {NULL, NULL,
          "RemoveIPC=no in /etc/systemd/logind.conf, systemctl restart systemd-logind; or loginctl "
          "enable-linger USER"},
     .action = ACTION_HOST,
     .explain = "RemoveIPC in logind.conf and logind.conf.d (systemd's default: yes), unless this "
                "user is a system user (id below 1000) or lingers. Only where systemd-logind runs.",
     .refs = {"https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html",
              NCCL_TROUBLE}},
};

const struct check_table checks_shm = {rows, sizeof(rows) / sizeof(*rows)};
