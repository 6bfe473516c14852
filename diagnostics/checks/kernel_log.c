/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel_log: errors that the kernel logged on this machine (OOM kills, hung tasks, stuck
 * processors), and processes that are stuck or zombies right now.
 *
 * Reads the answers "kmsg" and "procs". Events older than a day are information only: a line of the
 * log stays until the next boot. Pure functions, run by doctor.c.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/checks/kernel_log.h"

#define OLD_S (24 * 3600)

char *kernel_log_age(char *dst, size_t size, int64_t seconds)
{
    if (seconds < 0)
        snprintf(dst, size, "at an unknown time");
    else if (seconds < 120)
        snprintf(dst, size, "%lld s ago", (long long)seconds);
    else if (seconds < 2 * 3600)
        snprintf(dst, size, "%lld min ago", (long long)seconds / 60);
    else if (seconds < 48 * 3600)
        snprintf(dst, size, "%lld h ago", (long long)seconds / 3600);
    else
        snprintf(dst, size, "%lld days ago", (long long)seconds / 86400);
    return dst;
}

bool kernel_log_read(const struct view *v, struct result *r, const struct answer **ret)
{
    *ret = machine_answer(v->machine, "kmsg");
    if ((*ret)->state == ANSWER_FAILED && ((*ret)->detail == EPERM || (*ret)->detail == EACCES)) {
        result_skip(r, "the kernel's log may not be read: docker run --cap-add=SYSLOG, or run "
                       "hvd-doctor on the host as root");
        return false;
    }
    if ((*ret)->state == ANSWER_FAILED && (*ret)->detail == ENOENT) {
        result_skip(r, "there is no /dev/kmsg here, and syslog(2) is refused: run hvd-doctor on "
                       "the host");
        return false;
    }
    if (!result_needs(r, *ret, "the kernel's log"))
        return false;
    if (answer_has(*ret, "lines"))
        return true;
    result_skip(r, "the answer about the kernel's log is incomplete");
    return false;
}

int kernel_log_newest(const struct answer *a, const char *list, const char **ret_line,
                      int64_t *ret_age)
{
    char key[32];
    int kept = answer_count(a, list);
    snprintf(key, sizeof(key), "%s_count", list);
    int64_t n = answer_int(a, key, kept);
    *ret_line = kept ? answer_str_at(a, list, kept - 1, "line", "") : "";
    *ret_age = kept ? answer_int_at(a, list, kept - 1, "age_s", -1) : -1;
    return n < kept ? kept : n > 1000000 ? 1000000 : (int)n;
}

static void check_readable(const struct view *v, struct result *r)
{
    const struct answer *a;
    if (!kernel_log_read(v, r, &a))
        return;
    long long lines = (long long)answer_int(a, "lines", 0);
    result_observed(r, "%lld lines", lines);
    result_expected(r, "a readable log");
    if (lines == 0)
        result_info(r, "the kernel's log can be read (%s), but is empty: it was cleared",
                    answer_str(a, "source", "?"));
    else
        result_pass(r, "the kernel's log can be read: %lld lines from %s", lines,
                    answer_str(a, "source", "?"));
}

/* How many log lines of a kind there are, the newest line and its age. Returns 0 when there is
 * none; the result is then set. */
static int events(const struct view *v, struct result *r, const char *kind, const char *none,
                  const char **ret_line, char when[64], int64_t *ret_age)
{
    const struct answer *a;
    if (!kernel_log_read(v, r, &a))
        return 0;
    int n = kernel_log_newest(a, kind, ret_line, ret_age);
    result_observed(r, "%d", n);
    result_expected(r, "0 within a day");
    if (n == 0)
        result_pass(r, "%s", none);
    else
        kernel_log_age(when, 64, *ret_age);
    return n;
}

/* Writes "python, process 123" for an oom-kill line with "task=python,pid=123". */
static void oom_victim(const char *line, char *dst, size_t size)
{
    char task[64] = "?";
    long pid = 0;
    const char *at = strstr(line, ",task="), *number = strstr(line, ",pid=");
    if (at)
        sscanf(at + 6, "%63[^,]", task);
    if (number)
        pid = strtol(number + 5, NULL, 10);
    snprintf(dst, size, "%s, process %ld", task, pid);
}

static void check_oom(const struct view *v, struct result *r)
{
    const char *line;
    char when[64], who[96];
    int64_t age;
    int n = events(v, r, "oom", "no process was OOM-killed", &line, when, &age);
    if (n == 0)
        return;
    oom_victim(line, who, sizeof(who));
    bool limit = strstr(line, "CONSTRAINT_MEMCG") != NULL;
    if (age > OLD_S)
        result_info(r, "the kernel OOM-killed %d process%s, the last %s (%s)", n,
                    n == 1 ? "" : "es", when, who);
    else
        result_warn(r, "the kernel OOM-killed %d process%s, the last %s (%s): %s", n,
                    n == 1 ? "" : "es", when, who,
                    limit ? "its container's limit" : "the machine's memory was used up");
}

/* Writes "python:123" for a line "task python:123 blocked for more than 122 seconds." */
static void hung_task(const char *line, char *dst, size_t size)
{
    const char *at = strstr(line, "task "), *end = strstr(line, " blocked for");
    if (at && end && at + 5 < end)
        snprintf(dst, size, "%.*s", (int)(end - at - 5 < 60 ? end - at - 5 : 60), at + 5);
    else
        snprintf(dst, size, "?");
}

static void check_hung(const struct view *v, struct result *r)
{
    const char *line;
    char when[64], who[96];
    int64_t age;
    int n = events(v, r, "hung", "no task hung in the kernel", &line, when, &age);
    if (n == 0)
        return;
    hung_task(line, who, sizeof(who));
    if (age > OLD_S)
        result_info(r, "%d report%s of tasks that hung in the kernel, the last %s (%s)", n,
                    n == 1 ? "" : "s", when, who);
    else
        result_warn(r, "%d report%s of tasks that hung in the kernel, the last %s: %s", n,
                    n == 1 ? "" : "s", when, who);
}

/* The answer "procs". Returns false when there is none; the result is set. */
static bool processes(const struct view *v, struct result *r, const struct answer **ret)
{
    *ret = machine_answer(v->machine, "procs");
    if (!result_needs(r, *ret, "processes"))
        return false;
    if (answer_int(*ret, "total", 0) > 0)
        return true;
    result_skip(r, "no processes are visible: needs /proc");
    return false;
}

static void check_stuck(const struct view *v, struct result *r)
{
    const struct answer *a;
    char list[256] = "";
    if (!processes(v, r, &a))
        return;
    long long n = (long long)answer_int(a, "stuck_count", 0);
    int named = answer_count(a, "stuck");
    for (int i = 0; i < named && i < 4; i++) {
        size_t at = strlen(list);
        const char *wait = answer_str_at(a, "stuck", i, "wait", NULL);
        snprintf(list + at, sizeof(list) - at, "%s%.16s %lld%s%.24s", at ? ", " : "",
                 answer_str_at(a, "stuck", i, "name", "?"),
                 (long long)answer_int_at(a, "stuck", i, "pid", 0), wait ? " in " : "",
                 wait ? wait : "");
    }
    result_observed(r, "%lld", n);
    result_expected(r, "0");
    if (n > 0)
        result_warn(
            r, "%lld process%s stuck in the kernel (state D, seen %lld times in a row): %s%s", n,
            n == 1 ? "" : "es", (long long)answer_int(a, "looks", 0), list, n > 4 ? " ..." : "");
    else
        result_pass(r, "none of %lld processes is stuck in the kernel",
                    (long long)answer_int(a, "total", 0));
}

static void check_zombies(const struct view *v, struct result *r)
{
    const struct answer *a;
    const char *parent = "?";
    long long most = -1, ppid = 0;
    if (!processes(v, r, &a))
        return;
    long long n = (long long)answer_int(a, "zombies", 0);
    for (int i = 0; i < answer_count(a, "zombie"); i++) {
        if (answer_int_at(a, "zombie", i, "n", 0) <= most)
            continue;
        most = (long long)answer_int_at(a, "zombie", i, "n", 0);
        parent = answer_str_at(a, "zombie", i, "parent", "?");
        ppid = (long long)answer_int_at(a, "zombie", i, "ppid", 0);
    }
    result_observed(r, "%lld", n);
    result_expected(r, "< 1000");
    if (n >= 2000)
        result_fail(r, "%lld zombie processes, most are children of %.40s (%lld)", n, parent, ppid);
    else if (n >= 1000)
        result_warn(r, "%lld zombie processes, most are children of %.40s (%lld)", n, parent, ppid);
    else
        result_pass(r, "%lld zombie processes", n);
}

#define SYSCTL_KERNEL "https://docs.kernel.org/admin-guide/sysctl/kernel.html"

static const struct check rows[] = {
    {.id = "kmsg-readable",
     .code = "HVD1101",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "CAP_SYSLOG, or kernel.dmesg_restrict=0",
     .probes = {"kmsg"},
     .run = check_readable,
     .title = "the kernel's log can be read",
     .why = "Without the log an OOM kill, a GPU that fell off the bus (Xid) or a failing disk goes "
            "unnoticed.",
     .fix =
         {"docker run --cap-add=SYSLOG --device=/dev/kmsg ...",
          "securityContext: {capabilities: {add: [SYSLOG]}}; or node-problem-detector on the node",
          "run as root, or sysctl -w kernel.dmesg_restrict=0"},
     .action = ACTION_PERMISSION,
     .explain = "Opens /dev/kmsg, else asks syslog(2), which containers with CAP_SYSLOG have.",
     .refs = {SYSCTL_KERNEL, "https://man7.org/linux/man-pages/man2/syslog.2.html"}},
    {.id = "kernel-oom-events",
     .code = "HVD1102",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "CAP_SYSLOG, or kernel.dmesg_restrict=0",
     .probes = {"kmsg"},
     .run = check_oom,
     .title = "processes killed by the OOM killer",
     .why = "A rank that ended with 137 or SIGKILL may be the killed process; the job hangs or "
            "ends without a message.",
     .fix = {"docker run --memory=64g ... (larger); fewer DataLoader workers",
             "raise resources.limits.memory; fewer DataLoader workers",
             "dmesg -T | grep -i oom-kill; more memory, fewer workers, smaller batches"},
     .action = ACTION_FREE_SPACE,
     .explain =
         "Lines \"oom-kill:constraint=\" of the kernel's log. CONSTRAINT_MEMCG: a container's "
         "limit; CONSTRAINT_NONE: the machine's memory. Older than a day is information.",
     .refs = {"https://docs.kernel.org/admin-guide/mm/concepts.html"}},
    {.id = "kernel-hung-task",
     .code = "HVD1103",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "CAP_SYSLOG, or kernel.dmesg_restrict=0",
     .probes = {"kmsg"},
     .run = check_hung,
     .title = "tasks that hung in the kernel",
     .why = "A task that waits in the kernel for minutes waits for a disk, file server or GPU that "
            "does not answer; "
            "a rank among them stops the whole job and cannot be killed.",
     .fix =
         {NULL, "kubectl cordon NODE; kubectl drain NODE",
          "dmesg -T | grep -A20 \"blocked for more than\" shows where; repair the disk, mount or "
          "driver, reboot"},
     .action = ACTION_REBOOT,
     .explain = "Lines \"blocked for more than N seconds\" of the kernel's log "
                "(kernel.hung_task_timeout_secs, 120 by default). Older than a day is information.",
     .refs = {SYSCTL_KERNEL}},
    {.id = "dstate-procs",
     .code = "HVD1104",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/proc",
     .probes = {"procs"},
     .run = check_stuck,
     .title = "processes stuck right now",
     .why = "A process in state D waits for a device and cannot be killed; its memory and GPU stay "
            "taken.",
     .fix = {"docker kill does not help: see the host", "kubectl cordon NODE; reboot the node",
             "cat /proc/PID/stack (root) shows what it waits for; repair that, or reboot"},
     .action = ACTION_REBOOT,
     .explain = "Processes that are in state D at five samples within 200 ms and did not run in "
                "between (voluntary_ctxt_switches). Kernel threads do not count. Slow disks cause "
                "short waits; the agent's watch observes for longer.",
     .refs = {"https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"}},
    {.id = "zombie-count",
     .code = "HVD1105",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/proc",
     .probes = {"procs"},
     .run = check_zombies,
     .title = "zombie processes",
     .why = "A zombie keeps its process number until its parent reaps it; when the numbers are "
            "used up, no process can be started. In a container process 1 must reap orphans.",
     .fix = {"docker run --init ...",
             "shareProcessNamespace: true, or an init (tini, dumb-init) as the image's entrypoint",
             "restart the parent: ps -eo ppid,stat | awk '$2 ~ /Z/ {print $1}' | sort | uniq -c"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "Processes in state Z: 1000 warns, 2000 fails (the thresholds of gpud).",
     .refs = {"https://docs.docker.com/reference/cli/docker/container/run/#init"}},
};

const struct check_table checks_kernel_log = {rows, sizeof(rows) / sizeof(*rows)};
