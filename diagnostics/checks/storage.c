/* SPDX-License-Identifier: Apache-2.0
 *
 * storage: is there room where the job writes, may it write there, and do file servers answer?
 *
 * Reads the answers "disk-data", "disk-tmp" and "mounts". Pure functions, run by doctor.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/mounts.h"

#define MIB UINT64_C(1048576)
#define GIB (1024 * MIB)

#define SLOW_MS 1000

static void check_space(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "disk-data");
    char left[32], all[32];
    if (!result_needs(r, a, "the data folder"))
        return;
    const char *path = answer_str(a, "real", answer_str(a, "path", "the current folder"));
    int error = (int)answer_int(a, "errno", 0);
    if (error) {
        result_fail(r, "%s: %s", path, strerror(error));
        result_observed(r, "%s", strerrorname_np(error));
        return;
    }
    int64_t total = answer_int(a, "total", -1), room = answer_int(a, "free", -1);
    int64_t inodes = answer_int(a, "inodes", 0), inodes_free = answer_int(a, "inodes_free", 0);
    if (total <= 0 || room < 0) {
        result_skip(r, "%s: the file system does not tell its size", path);
        return;
    }
    if (answer_int(a, "readonly", 0) == 1) { /* data sets are often images without free space */
        result_pass(r, "%s is read-only: no room needed", path);
        return;
    }
    check_bytes(left, sizeof(left), (uint64_t)room);
    check_bytes(all, sizeof(all), (uint64_t)total);
    double percent = 100.0 * (double)room / (double)total;
    result_observed(r, "%lld", (long long)room);
    result_expected(r, ">= 5 %% or 20 GiB, >= 1 GiB");
    if ((uint64_t)room < 100 * MIB)
        result_fail(r, "%s has %s of %s left", path, left, all);
    else if ((uint64_t)room < GIB || (percent < 5 && (uint64_t)room < 20 * GIB))
        result_warn(r, "%s has %s of %s left (%.1f %%)", path, left, all, percent);
    else if (inodes > 0 && inodes_free < inodes / 100)
        result_warn(r, "%s has room for only %lld more files (%s left)", path,
                    (long long)inodes_free, left);
    else
        result_pass(r, "%s has %s of %s left", path, left, all);
}

/* Returns whether the kernel made the file system of path read-only after an error: the mount is
 * rw, the file system is ro. */
static bool fell_back(const char *mountinfo, const char *path, struct mount *ret)
{
    return mountinfo && *path == '/' && mounts_of(mountinfo, path, ret) &&
           mount_has(ret->options, "rw") && mount_has(ret->super, "ro");
}

/* Why the folder is not writable; "" when it is. */
static void why_not_writable(const struct answer *a, const char *mountinfo, char *dst, size_t size)
{
    const char *path = answer_str(a, "real", "");
    struct mount mount;
    *dst = '\0';
    if (a->state != ANSWER_OK || !*path)
        return;
    if (fell_back(mountinfo, path, &mount))
        snprintf(dst, size, "%.200s: the kernel made %.100s read-only after an error", path,
                 mount.source);
    else if (answer_int(a, "readonly", 0) == 1)
        snprintf(dst, size, "%.200s is mounted read-only", path);
    else if (answer_int(a, "writable", 1) == 0)
        snprintf(dst, size, "%.200s is not writable for this user", path);
}

static void check_readonly(const struct view *v, struct result *r)
{
    const struct answer *tmp = machine_answer(v->machine, "disk-tmp");
    const struct answer *data = machine_answer(v->machine, "disk-data");
    auto_free char *mountinfo = NULL;
    char at_tmp[400], at_data[400];
    if (!result_needs(r, tmp, "the temporary folder") || !result_needs(r, data, "the data folder"))
        return;
    if (!answer_has(tmp, "path") || (!answer_has(data, "real") && !answer_has(data, "errno"))) {
        result_skip(r, "the answers about the folders are incomplete");
        return;
    }
    if (machine_read(v->machine, "proc/self/mountinfo", &mountinfo, NULL) < 0)
        mountinfo = NULL;
    why_not_writable(tmp, mountinfo, at_tmp, sizeof(at_tmp));
    why_not_writable(data, mountinfo, at_data, sizeof(at_data));
    result_observed(r, "%s", *at_tmp || *at_data ? "read-only" : "writable");
    result_expected(r, "writable");
    int error = (int)answer_int(tmp, "errno", 0);
    if (error)
        result_fail(r, "the temporary folder %s: %s", answer_str(tmp, "path", "/tmp"),
                    strerror(error));
    else if (*at_tmp)
        result_fail(r, "temporary folder: %s", at_tmp);
    else if (*at_data && strstr(at_data, "after an error"))
        result_fail(r, "%s", at_data);
    else if (*at_data)
        result_info(r, "%s: checkpoints need another place", at_data);
    else
        result_pass(r, "%s and %s are writable", answer_str(tmp, "real", "the temporary folder"),
                    answer_str(data, "real", "the current folder"));
}

static void check_hung(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "mounts");
    char bad[300] = "", slow[200] = "";
    if (!result_needs(r, a, "remote file systems"))
        return;
    int n = answer_count(a, "mount"), hung = 0;
    if (!answer_has(a, "left")) {
        result_skip(r, "the answer about remote file systems is incomplete");
        return;
    }
    for (int i = 0; i < n; i++) {
        const char *point = answer_str_at(a, "mount", i, "point", "?");
        const char *type = answer_str_at(a, "mount", i, "type", "?");
        const char *state = answer_str_at(a, "mount", i, "state", "?");
        long long ms = (long long)answer_int_at(a, "mount", i, "ms", 0);
        int64_t error = answer_int_at(a, "mount", i, "state", 0);
        size_t at = strlen(bad), late = strlen(slow);
        if (strcmp(state, "hung") == 0) {
            hung++;
            snprintf(bad + at, sizeof(bad) - at, "%s%.80s (%s) does not answer for %lld ms",
                     at ? ", " : "", point, type, ms);
        } else if (error == ESTALE || error == EIO || error == ENOTCONN || error == EHOSTDOWN ||
                   error == ETIMEDOUT) {
            hung++;
            snprintf(bad + at, sizeof(bad) - at, "%s%.80s (%s): %s", at ? ", " : "", point, type,
                     strerror((int)error));
        } else if (ms >= SLOW_MS) {
            snprintf(slow + late, sizeof(slow) - late, "%s%.80s (%s) %lld ms", late ? ", " : "",
                     point, type, ms);
        }
    }
    result_observed(r, "%d of %d", hung, n);
    result_expected(r, "0");
    if (*bad)
        result_fail(r, "%s", bad);
    else if (*slow)
        result_warn(r, "slow to answer: %s", slow);
    else if (n == 0)
        result_pass(r, "no remote file system is mounted");
    else
        result_pass(r, "%d remote file system%s answer%s", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
}

static const struct check rows[] = {
    {.id = "disk-space",
     .code = "HVD9001",
     .group = GROUP_STORAGE,
     .level = 1,
     .probes = {"disk-data"},
     .run = check_space,
     .title = "room for checkpoints",
     .why =
         "A full disk ends the job at its next checkpoint, and a file in memory (mmap) on a full "
         "disk ends it with \"Bus error\".",
     .fix =
         {"docker system df; docker system prune; or -v /large/disk:/data",
          "a larger volume: kubectl edit pvc NAME (resources.requests.storage); kubectl describe "
          "node shows DiskPressure",
          "df -h; du -xh --max-depth=2 / | sort -h | tail"},
     .action = ACTION_FREE_SPACE,
     .explain =
         "statvfs of --data DIR or the current folder. Less than 1 GiB, or less than 5 % and "
         "20 GiB, warns; less than 100 MiB fails; less than 1 % of the inodes warns (own "
         "thresholds).",
     .refs = {"https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/",
              "https://docs.docker.com/reference/cli/docker/system/prune/"}},
    {.id = "fs-readonly",
     .code = "HVD9002",
     .group = GROUP_STORAGE,
     .level = 1,
     .probes = {"disk-tmp", "disk-data"},
     .run = check_readonly,
     .title = "the job can write its files",
     .why =
         "Python, Open MPI and NCCL write to the temporary folder when they start; checkpoints go "
         "to the folder of the data.",
     .fix =
         {"docker run --tmpfs /tmp ..., or without --read-only; -v /data:/data:rw",
          "volumes: [{name: tmp, emptyDir: {}}], volumeMounts: [{name: tmp, mountPath: /tmp}]",
          "dmesg | grep -i -e error -e remount; fsck, then mount -o remount,rw; or TMPDIR=/other"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "statvfs and access of TMPDIR (or /tmp) and of --data DIR (or the current folder). "
                "A mount that is rw over a file system that is ro (/proc/self/mountinfo) was made "
                "read-only by the kernel after an error: the disk is failing. A data folder that "
                "is not writable is information.",
     .refs = {"https://man7.org/linux/man-pages/man5/proc_pid_mountinfo.5.html"}},
    {.id = "fs-hung",
     .code = "HVD9003",
     .group = GROUP_STORAGE,
     .level = 1,
     .probes = {"mounts"},
     .run = check_hung,
     .title = "file servers answer",
     .why = "A rank that touches a hung NFS or FUSE mount waits forever and cannot be killed; all "
            "other ranks wait for it in their next collective.",
     .fix = {NULL, "kubectl describe pod; restart the CSI driver's pod on this node",
             "umount -l MOUNT; then the server or network; mount with soft,timeo=100 where lost "
             "writes are acceptable"},
     .action = ACTION_HOST,
     .explain = "statvfs of every NFS, SMB, Lustre, FUSE ... mount in a child each, for 5 s. No "
                "answer, ESTALE, EIO, ENOTCONN fail; more than 1 s warns (own thresholds).",
     .refs = {"https://man7.org/linux/man-pages/man5/nfs.5.html"}},
};

const struct check_table checks_storage = {rows, sizeof(rows) / sizeof(*rows)};
