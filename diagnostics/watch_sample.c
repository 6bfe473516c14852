/* SPDX-License-Identifier: Apache-2.0
 *
 * watch_sample: see watch_sample.h. Where a file is missing, the conditions that need it are not
 * measured.
 */
#include "diagnostics/watch_sample.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "diagnostics/check.h"

#define KMSG_RECORDS  256 /* read in one sample; the next sample reads the rest */
#define STUCK_SAMPLES 5
#define LOW_ROOM      (100ull << 20)

/* How much a counter has grown since the last sample; -1: unknown. Stores the new value. */
static int64_t growth(int64_t *before, int64_t now)
{
    int64_t grown = *before < 0 || now < 0 ? -1 : now < *before ? 0 : now - *before;
    *before = now;
    return grown;
}

void sample_init(struct sampler *l, const struct machine *m)
{
    *l = (struct sampler){.machine = m,
                          .first = true,
                          .oom_kills = -1,
                          .periods = -1,
                          .throttled = -1,
                          .swapped = -1};
    l->has_cgroup = cgroup_find(m, &l->cgroup) == 0;
    l->kmsg = openat(m->root, "dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (l->kmsg >= 0)
        lseek(l->kmsg, 0, SEEK_END);
}

void sample_fini(struct sampler *l)
{
    if (l->kmsg >= 0)
        close(l->kmsg);
    free(l->processes);
}

/* ---- the kernel's log ------------------------------------------------------------------------ */

static void take_line(struct sample_kernel *k, const char *line)
{
    const char *text = strchr(line, ';');
    if (*line == ' ' || !text)
        return; /* a "KEY=value" line of the record before */
    if (strstr(text, "oom-kill:constraint=")) {
        k->oom++;
        snprintf(k->oom_line, sizeof(k->oom_line), "%s", text + 1);
    }
    if (strstr(text, "NVRM: Xid (")) {
        k->xid++;
        snprintf(k->xid_line, sizeof(k->xid_line), "%s", text + 1);
    }
}

/* A read of the device returns one record, a read of a captured file all lines added. */
static void read_kernel(struct sampler *l)
{
    char text[8192];
    l->kernel = (struct sample_kernel){0};
    for (int i = 0; l->kmsg >= 0 && i < KMSG_RECORDS; i++) {
        ssize_t n = read(l->kmsg, text, sizeof(text) - 1);
        if (n < 0 && (errno == EPIPE || errno == EINTR || errno == EINVAL))
            continue;
        if (n <= 0)
            return;
        text[n] = '\0';
        for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save))
            take_line(&l->kernel, line);
    }
}

double sample_kernel_oom(struct sampler *l, char text[SAMPLE_TEXT])
{
    if (l->kmsg < 0)
        return NAN;
    snprintf(text, SAMPLE_TEXT, "the kernel OOM-killed a process: %s", l->kernel.oom_line);
    return l->kernel.oom;
}

double sample_xid(struct sampler *l, char text[SAMPLE_TEXT])
{
    if (l->kmsg < 0)
        return NAN;
    snprintf(text, SAMPLE_TEXT, "the GPU driver reported: %s", l->kernel.xid_line);
    return l->kernel.xid;
}

/* ---- the cgroup ----------------------------------------------------------------------- */

double sample_oom_kills(struct sampler *l, char text[SAMPLE_TEXT])
{
    struct cgroup_memory m;
    if (!l->has_cgroup || cgroup_memory(l->machine, &l->cgroup, &m) < 0 || m.oom_kills < 0)
        return NAN;
    int64_t n = growth(&l->oom_kills, m.oom_kills);
    snprintf(text, SAMPLE_TEXT, "%" PRId64 " process%s of this container OOM-killed", n,
             n == 1 ? "" : "es");
    return n < 0 ? 0 : (double)n;
}

double sample_throttle(struct sampler *l, char text[SAMPLE_TEXT])
{
    struct cgroup_cpu c;
    if (!l->has_cgroup || cgroup_cpu(l->machine, &l->cgroup, &c) < 0 || c.periods < 0)
        return NAN;
    int64_t periods = growth(&l->periods, c.periods);
    int64_t throttled = growth(&l->throttled, c.throttled);
    double share = periods > 0 && throttled > 0 ? 100.0 * (double)throttled / (double)periods : 0;
    snprintf(text, SAMPLE_TEXT, "the CPU quota (%.1f processors) ran out in %.0f %% of its periods",
             c.cpus, share);
    return share;
}

double sample_memory(struct sampler *l, char text[SAMPLE_TEXT])
{
    struct cgroup_memory m;
    char room[24], limit[24];
    if (!l->has_cgroup || cgroup_memory(l->machine, &l->cgroup, &m) < 0 ||
        m.limit == CGROUP_NO_LIMIT || m.limit == 0)
        return NAN;
    snprintf(text, SAMPLE_TEXT, "%s left of the memory limit of %s",
             check_bytes(room, sizeof(room), m.room), check_bytes(limit, sizeof(limit), m.limit));
    if (m.room < LOW_ROOM && m.room < m.limit / 4)
        return 100;
    return m.room > m.limit ? 0 : 100 - 100.0 * (double)m.room / (double)m.limit;
}

double sample_shm(struct sampler *l, char text[SAMPLE_TEXT])
{
    struct statvfs fs;
    char room[24], size[24];
    auto_close int fd = openat(l->machine->root, "dev/shm", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstatvfs(fd, &fs) < 0 || fs.f_blocks == 0)
        return NAN;
    snprintf(text, SAMPLE_TEXT, "/dev/shm has %s of %s left",
             check_bytes(room, sizeof(room), (uint64_t)fs.f_bavail * fs.f_frsize),
             check_bytes(size, sizeof(size), (uint64_t)fs.f_blocks * fs.f_frsize));
    return 100 - 100.0 * (double)fs.f_bavail / (double)fs.f_blocks;
}

/* ---- the network ----------------------------------------------------------------------------- */

/* Returns whether this is a hardware interface, or a container's eth0. Bridges and veth pairs are
 * ignored: they come and go with containers. */
static bool is_real(const struct machine *m, const char *name)
{
    return strncmp(name, "eth", 3) == 0 || strncmp(name, "ib", 2) == 0 ||
           machine_exists(m, "sys/class/net/%s/device", name);
}

static struct sample_nic *find_nic(struct sampler *l, const char *name)
{
    for (int i = 0; i < l->nnics; i++)
        if (strcmp(l->nics[i].name, name) == 0)
            return &l->nics[i];
    if (l->nnics == SAMPLE_NICS || strlen(name) >= sizeof(l->nics[0].name))
        return NULL;
    struct sample_nic *nic = &l->nics[l->nnics++];
    *nic = (struct sample_nic){.errors = -1, .changes = -1};
    memcpy(nic->name, name, strlen(name) + 1);
    return nic;
}

static int64_t count_errors(const struct machine *m, const char *name)
{
    static const char *const counters[] = {"rx_errors", "tx_errors"};
    int64_t sum = 0, one;
    for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
        if (machine_int(m, &one, "sys/class/net/%s/statistics/%s", name, counters[i]) < 0)
            return -1;
        sum += one;
    }
    return sum;
}

static void read_nics(struct sampler *l)
{
    auto_free char **names = NULL;
    size_t n = 0;
    l->nic_errors = l->nic_changes = -1;
    if (machine_list(l->machine, "sys/class/net", &names, &n) < 0)
        return;
    for (size_t i = 0; i < n; i++) {
        int64_t changes = -1;
        struct sample_nic *nic = is_real(l->machine, names[i]) ? find_nic(l, names[i]) : NULL;
        if (!nic)
            continue;
        int64_t grown = growth(&nic->errors, count_errors(l->machine, names[i]));
        if (grown > l->nic_errors) {
            l->nic_errors = grown;
            memcpy(l->nic_errors_name, nic->name, sizeof(nic->name));
        }
        if (machine_int(l->machine, &changes, "sys/class/net/%s/carrier_changes", names[i]) < 0)
            changes = -1;
        grown = growth(&nic->changes, changes);
        if (grown > l->nic_changes) {
            l->nic_changes = grown;
            memcpy(l->nic_changes_name, nic->name, sizeof(nic->name));
        }
    }
}

double sample_nic_errors(struct sampler *l, char text[SAMPLE_TEXT])
{
    if (l->nic_errors < 0)
        return l->first ? 0 : NAN;
    snprintf(text, SAMPLE_TEXT, "%s: %" PRId64 " errors within %.0f s", l->nic_errors_name,
             l->nic_errors, (double)(l->now - l->before) / CLOCK_S);
    return (double)l->nic_errors;
}

double sample_nic_changes(struct sampler *l, char text[SAMPLE_TEXT])
{
    if (l->nic_changes < 0)
        return l->first ? 0 : NAN;
    snprintf(text, SAMPLE_TEXT, "%s: the link went down or up %" PRId64 " times within %.0f s",
             l->nic_changes_name, l->nic_changes, (double)(l->now - l->before) / CLOCK_S);
    return (double)l->nic_changes;
}

/* ---- processes and memory -------------------------------------------------------------------- */

/* The state letter of /proc/PID/stat. It follows the name in parentheses, which may contain any
 * character. */
static char process_state(const struct machine *m, pid_t pid)
{
    char path[64];
    auto_free char *text = NULL;
    snprintf(path, sizeof(path), "proc/%d/stat", (int)pid);
    if (machine_read(m, path, &text, NULL) < 0)
        return '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end[2] : '\0';
}

double sample_stuck(struct sampler *l, char text[SAMPLE_TEXT])
{
    int n = 0;
    for (size_t i = 0; i < l->nprocesses; i++) {
        struct sample_process *p = &l->processes[i];
        p->stuck = process_state(l->machine, p->pid) == 'D' ? p->stuck + 1 : 0;
        if (p->stuck < STUCK_SAMPLES)
            continue;
        snprintf(text, SAMPLE_TEXT,
                 "process %d has been stuck in the kernel (state D) in %d samples, 5 s apart",
                 (int)p->pid, p->stuck);
        n++;
    }
    return n;
}

double sample_swap(struct sampler *l, char text[SAMPLE_TEXT])
{
    int64_t in, out;
    if (machine_field_int(l->machine, "proc/vmstat", "pswpin", &in) < 0 ||
        machine_field_int(l->machine, "proc/vmstat", "pswpout", &out) < 0)
        return NAN;
    int64_t pages = growth(&l->swapped, in + out);
    double seconds = (double)(l->now - l->before) / CLOCK_S;
    double rate = pages > 0 && seconds > 0 ? (double)pages / seconds : 0;
    snprintf(text, SAMPLE_TEXT, "this machine swaps %.0f pages a second", rate);
    return rate;
}

void sample_begin(struct sampler *l, uint64_t now)
{
    l->before = l->now;
    l->now = now;
    read_kernel(l);
    read_nics(l);
}
