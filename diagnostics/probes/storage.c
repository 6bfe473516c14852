/* SPDX-License-Identifier: Apache-2.0
 *
 * storage: file systems that may hang: those of the temporary folder and of the data, and every
 * remote one.
 *
 * Runs in children of its own; each remote mount is tried in a child of that child, so that a hung
 * server blocks one process and not the answer. Answers: "disk-tmp", "disk-data": path, and either
 * errno or real total free inodes inodes_free readonly writable; "mounts": list mount (point type
 * source state ms), state 0 (it answered), hung or an errno, and left: how many more there were
 * than can be tried.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "diagnostics/mounts.h"
#include "diagnostics/probe.h"
#include "diagnostics/probes/storage.h"

#define HUNG_MS    5000
#define MARGIN_MS  500
#define MOUNTS_MAX 32

void storage_look(struct buf *out, const char *path)
{
    char real[PATH_MAX];
    struct statvfs vfs;
    answer_put(out, "path", "%s", path);
    if (!realpath(path, real) || statvfs(real, &vfs) < 0) {
        answer_put(out, "errno", "%d", errno);
        return;
    }
    answer_put(out, "real", "%s", real);
    answer_put(out, "total", "%llu", (unsigned long long)vfs.f_blocks * vfs.f_frsize);
    answer_put(out, "free", "%llu", (unsigned long long)vfs.f_bavail * vfs.f_frsize);
    answer_put(out, "inodes", "%llu", (unsigned long long)vfs.f_files);
    answer_put(out, "inodes_free", "%llu", (unsigned long long)vfs.f_favail);
    answer_put(out, "readonly", "%d", (vfs.f_flag & ST_RDONLY) != 0);
    answer_put(out, "writable", "%d", access(real, W_OK | X_OK) == 0);
}

static int run_tmp(struct buf *out, const struct machine *m, const struct setting *s)
{
    const char *tmp = machine_env(m, "TMPDIR");
    storage_look(out, tmp && *tmp ? tmp : "/tmp");
    return 0;
}

static int run_data(struct buf *out, const struct machine *m, const struct setting *s)
{
    char cwd[PATH_MAX];
    if (s->data_dir)
        storage_look(out, s->data_dir);
    else if (getcwd(cwd, sizeof(cwd)))
        storage_look(out, cwd);
    else
        answer_put(out, "errno", "%d", errno);
    return 0;
}

/* ---- mounts that may hang ---- */

struct asked {
    pid_t pid;
    int state; /* -1: has not returned, 0: answered, else an errno */
    int ms;
};

static void ask(struct asked *a, const char *point)
{
    *a = (struct asked){.state = -1};
    a->pid = fork();
    if (a->pid == 0) {
        struct statvfs vfs;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(statvfs(point, &vfs) < 0 ? errno : 0);
    }
    if (a->pid < 0)
        a->state = errno;
}

/* Collects the children that have ended; returns how many have not. */
static int collect(struct asked *asked, int n, int ms)
{
    int open = 0;
    for (int i = 0; i < n; i++) {
        int status;
        if (asked[i].state >= 0)
            continue;
        if (waitpid(asked[i].pid, &status, WNOHANG) != asked[i].pid) {
            open++;
            continue;
        }
        asked[i].state = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
        asked[i].ms = ms;
    }
    return open;
}

static void wait_all(struct asked *asked, int n, int limit_ms)
{
    uint64_t start = clock_ns(), deadline = start + (uint64_t)limit_ms * CLOCK_MS;
    const struct timespec pause = {0, 2 * 1000 * 1000};
    while (collect(asked, n, (int)((clock_ns() - start) / CLOCK_MS)) && !deadline_passed(deadline))
        nanosleep(&pause, NULL);
    for (int i = 0; i < n; i++)
        if (asked[i].state < 0)
            kill(asked[i].pid, SIGKILL); /* a child in state D survives this; init reaps it later */
}

void storage_mounts(struct buf *out, const char *mountinfo, bool (*may_hang)(const struct mount *),
                    int limit_ms)
{
    struct asked asked[MOUNTS_MAX];
    struct mount mount;
    int n = 0, left = 0;
    while (mounts_next(&mountinfo, &mount)) {
        if (!may_hang(&mount))
            continue;
        if (n == MOUNTS_MAX) {
            left++;
            continue;
        }
        answer_put_at(out, "mount", n, "point", "%s", mount.point);
        answer_put_at(out, "mount", n, "type", "%s", mount.type);
        answer_put_at(out, "mount", n, "source", "%s", mount.source);
        ask(&asked[n++], mount.point);
    }
    wait_all(asked, n, limit_ms);
    for (int i = 0; i < n; i++) {
        if (asked[i].state < 0)
            answer_put_at(out, "mount", i, "state", "hung");
        else
            answer_put_at(out, "mount", i, "state", "%d", asked[i].state);
        answer_put_at(out, "mount", i, "ms", "%d", asked[i].state < 0 ? limit_ms : asked[i].ms);
    }
    answer_put(out, "left", "%d", left);
}

static int run_mounts(struct buf *out, const struct machine *m, const struct setting *s)
{
    auto_free char *text = NULL;
    int rc = machine_read(m, "proc/self/mountinfo", &text, NULL);
    int ms = s->timeout_ms - MARGIN_MS < HUNG_MS ? s->timeout_ms - MARGIN_MS : HUNG_MS;
    if (rc == 0)
        storage_mounts(out, text, mount_is_remote, ms > 0 ? ms : 1);
    return rc;
}

static const struct probe probes[] = {
    {.name = "disk-tmp", .level = 1, .ms = HUNG_MS, .run = run_tmp},
    {.name = "disk-data", .level = 1, .ms = HUNG_MS, .run = run_data},
    {.name = "mounts", .level = 1, .run = run_mounts},
};

const struct probe_table probes_storage = {probes, sizeof(probes) / sizeof(probes[0])};
