/* SPDX-License-Identifier: Apache-2.0
 *
 * procs: other processes: stuck in the kernel, zombies, ranks of running jobs.
 *
 * Each probe runs in a child of its own: reading the environment of a hung process can hang, too.
 * Answers: "procs" total zombies looks stuck_count; lists stuck (pid name wait) and zombie (ppid
 * parent n); "ranks" list rank (pid rank job user pidns ipc), unreadable.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "diagnostics/probe.h"
#include "diagnostics/probes/procs.h"

#define LOOKS      5
#define PAUSE_MS   40
#define STUCK_MAX  256
#define LIST_MAX   16
#define PF_KTHREAD 0x00200000

struct stuck {
    long pid;
    int64_t
        switches; /* voluntary context switches: while the number stays, the process has not run */
    char name[32];
};

struct parents {
    long ppid[LIST_MAX];
    int n[LIST_MAX];
    int used;
};

bool procs_stat_parse(const char *text, struct procs_stat *ret)
{
    /* a line "pid (name that may hold anything) S ppid pgrp session tty tpgid flags" */
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    struct procs_stat st = {0};
    if (!open || !close || close < open ||
        sscanf(close + 1, " %c %ld %*d %*d %*d %*d %lu", &st.state, &st.ppid, &st.flags) != 3)
        return false;
    st.pid = strtol(text, NULL, 10);
    size_t len = (size_t)(close - open - 1);
    if (len >= sizeof(st.name))
        len = sizeof(st.name) - 1;
    memcpy(st.name, open + 1, len);
    for (size_t i = 0; i < len; i++)
        if (!isprint((unsigned char)st.name[i]))
            st.name[i] = '?';
    *ret = st;
    return true;
}

static bool look(const struct machine *m, const char *pid, struct procs_stat *ret)
{
    char path[64];
    auto_free char *text = NULL;
    snprintf(path, sizeof(path), "proc/%.20s/stat", pid);
    return machine_read(m, path, &text, NULL) == 0 && procs_stat_parse(text, ret);
}

static int64_t switches_of(const struct machine *m, long pid)
{
    char path[64];
    int64_t v;
    snprintf(path, sizeof(path), "proc/%ld/status", pid);
    return machine_field_int(m, path, "voluntary_ctxt_switches", &v) == 0 ? v : -1;
}

static bool is_pid(const char *name)
{
    return isdigit((unsigned char)name[0]) && strspn(name, "0123456789") == strlen(name);
}

static void count_parent(struct parents *p, long ppid)
{
    int i = 0;
    while (i < p->used && p->ppid[i] != ppid)
        i++;
    if (i == LIST_MAX)
        return;
    if (i == p->used) {
        p->ppid[p->used] = ppid;
        p->n[p->used++] = 0;
    }
    p->n[i]++;
}

/* Keeps the processes that are still in the same wait; returns how many. */
static size_t keep_stuck(const struct machine *m, struct stuck *stuck, size_t n)
{
    size_t left = 0;
    for (size_t i = 0; i < n; i++) {
        char pid[24];
        struct procs_stat st;
        snprintf(pid, sizeof(pid), "%ld", stuck[i].pid);
        if (look(m, pid, &st) && st.state == 'D' &&
            switches_of(m, stuck[i].pid) == stuck[i].switches)
            stuck[left++] = stuck[i];
    }
    return left;
}

static void put_stuck(struct buf *out, const struct machine *m, const struct stuck *stuck, size_t n)
{
    for (size_t i = 0; i < n && i < LIST_MAX; i++) {
        char wait[128];
        answer_put_at(out, "stuck", (int)i, "pid", "%ld", stuck[i].pid);
        answer_put_at(out, "stuck", (int)i, "name", "%s", stuck[i].name);
        if (machine_line(m, wait, sizeof(wait), "proc/%ld/wchan", stuck[i].pid) == 0 &&
            strcmp(wait, "0") != 0)
            answer_put_at(out, "stuck", (int)i, "wait", "%s", wait);
    }
    answer_put(out, "stuck_count", "%zu", n);
}

static void put_parents(struct buf *out, const struct machine *m, const struct parents *p)
{
    for (int i = 0; i < p->used; i++) {
        char name[64];
        machine_line(m, name, sizeof(name), "proc/%ld/comm", p->ppid[i]);
        answer_put_at(out, "zombie", i, "ppid", "%ld", p->ppid[i]);
        answer_put_at(out, "zombie", i, "parent", "%s", name[0] ? name : "?");
        answer_put_at(out, "zombie", i, "n", "%d", p->n[i]);
    }
}

/* The doctor and its probes are not ranks, although they may have inherited a rank's
 * environment. */
static bool is_this_program(const struct machine *m, const char *pid)
{
    char path[64], own[512], theirs[512];
    snprintf(path, sizeof(path), "proc/%.20s/exe", pid);
    return machine_readlink(m, "proc/self/exe", own, sizeof(own)) == 0 &&
           machine_readlink(m, path, theirs, sizeof(theirs)) == 0 && strcmp(own, theirs) == 0;
}

static int run_procs(struct buf *out, const struct machine *m, const struct setting *s)
{
    static struct stuck stuck[STUCK_MAX];
    auto_free char **names = NULL;
    struct parents parents = {.used = 0};
    size_t n = 0;
    int total = 0, zombies = 0;
    int rc = machine_list(m, "proc", &names, NULL);
    for (size_t i = 0; rc == 0 && names[i]; i++) {
        struct procs_stat st;
        if (!is_pid(names[i]) || !look(m, names[i], &st))
            continue;
        total++;
        if (st.state == 'Z') {
            zombies++;
            count_parent(&parents, st.ppid);
        } else if (st.state == 'D' && !(st.flags & PF_KTHREAD) && n < STUCK_MAX &&
                   !is_this_program(m, names[i])) {
            stuck[n] = (struct stuck){.pid = st.pid, .switches = switches_of(m, st.pid)};
            memcpy(stuck[n++].name, st.name, sizeof(st.name));
        }
    }
    for (int look_no = 1; n && look_no < LOOKS; look_no++) {
        const struct timespec pause = {0, PAUSE_MS * 1000000L};
        nanosleep(&pause, NULL);
        n = keep_stuck(m, stuck, n);
    }
    answer_put(out, "total", "%d", total);
    answer_put(out, "zombies", "%d", zombies);
    answer_put(out, "looks", "%d", LOOKS);
    put_stuck(out, m, stuck, n);
    put_parents(out, m, &parents);
    return rc;
}

/* The value in env of the first of these variables (names end in =) that is set; NULL: none. */
static const char *value_of(const char *env, size_t len, const char *const *names)
{
    for (; *names; names++)
        for (const char *p = env; p < env + len; p += strlen(p) + 1)
            if (strncmp(p, *names, strlen(*names)) == 0)
                return p + strlen(*names);
    return NULL;
}

static const char *const rank_names[] = {
    "HVD_RANK=", "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "SLURM_PROCID=", NULL};
static const char *const job_names[] = {
    "HVD_JOB=", "PMIX_NAMESPACE=", "SLURM_JOB_ID=", "HVD_RENDEZVOUS=", NULL};

static void put_namespace(struct buf *out, const struct machine *m, int i, const char *pid,
                          const char *key, const char *ns)
{
    char path[64], link[64];
    snprintf(path, sizeof(path), "proc/%.20s/ns/%s", pid, ns);
    if (machine_readlink(m, path, link, sizeof(link)) == 0)
        answer_put_at(out, "rank", i, key, "%s", link);
}

static int run_ranks(struct buf *out, const struct machine *m, const struct setting *s)
{
    auto_free char **names = NULL;
    int found = 0, unreadable = 0;
    int rc = machine_list(m, "proc", &names, NULL);
    for (size_t i = 0; rc == 0 && names[i] && found < 256; i++) {
        char path[64];
        auto_free char *env = NULL;
        size_t len = 0;
        if (!is_pid(names[i]))
            continue;
        snprintf(path, sizeof(path), "proc/%.20s/environ", names[i]);
        if (machine_read(m, path, &env, &len) < 0) {
            unreadable++;
            continue;
        }
        const char *rank = value_of(env, len, rank_names);
        const char *job = value_of(env, len, job_names);
        if (!rank || is_this_program(m, names[i]))
            continue;
        answer_put_at(out, "rank", found, "pid", "%s", names[i]);
        answer_put_at(out, "rank", found, "rank", "%.16s", rank);
        answer_put_at(out, "rank", found, "job", "%.80s", job ? job : "");
        put_namespace(out, m, found, names[i], "user", "user");
        put_namespace(out, m, found, names[i], "pidns", "pid");
        put_namespace(out, m, found, names[i], "ipc", "ipc");
        found++;
    }
    answer_put(out, "unreadable", "%d", unreadable);
    return rc;
}

static const struct probe probes[] = {
    {.name = "procs", .level = 1, .run = run_procs},
    {.name = "ranks", .level = 1, .run = run_ranks},
};

const struct probe_table probes_procs = {probes, sizeof(probes) / sizeof(probes[0])};
