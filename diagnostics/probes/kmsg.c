/* SPDX-License-Identifier: Apache-2.0
 *
 * kmsg: the kernel's log: out of memory, hung tasks, stuck processors, lines of the NVIDIA driver.
 *
 * Reads /dev/kmsg without waiting, else syslog(2): containers often allow the call but lack the
 * device. Runs in a child of its own. Answer "kmsg": source, lines; lists oom, hung, lockup, xid of
 * the newest lines (line, age_s) and <list>_count of all there were.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "diagnostics/probe.h"
#include "diagnostics/probes/kmsg.h"

#define KEEP        16
#define LINE        400
#define RECORD      8192
#define RECORDS_MAX 500000
#define KLOG_READ   3
#define KLOG_SIZE   10

struct kept {
    char line[LINE];
    double at; /* seconds since boot, < 0: unknown */
};

struct kind {
    const char *name;
    const char *const *words; /* a line with any of these words belongs to the list */
    int count;
    struct kept kept[KEEP]; /* a ring buffer: line i is at i % KEEP */
};

static const char *const oom_words[] = {"oom-kill:constraint=", NULL};
static const char *const hung_words[] = {" blocked for more than ", NULL};
static const char *const lockup_words[] = {
    "BUG: soft lockup",           "soft lockup - CPU#",      "hard LOCKUP",
    "self-detected stall on CPU", "detected stalls on CPUs", NULL};
static const char *const xid_words[] = {"NVRM: Xid (", "SXid (", NULL};

struct log {
    struct kind kinds[4];
    long lines;
};

static void take(struct log *log, const char *text, double at)
{
    log->lines++;
    for (size_t k = 0; k < 4; k++) {
        struct kind *kind = &log->kinds[k];
        for (size_t w = 0; kind->words[w]; w++) {
            if (!strstr(text, kind->words[w]))
                continue;
            struct kept *kept = &kind->kept[kind->count++ % KEEP];
            snprintf(kept->line, sizeof(kept->line), "%s", text);
            kept->at = at;
            break;
        }
    }
}

bool kmsg_record(char *record, const char **ret_text, double *ret_at)
{
    /* "6,339,5140900,-;text\n KEY=value\n": level, number, microseconds, flags */
    char *text = strchr(record, ';'), *at = record;
    if (!text)
        return false;
    *text++ = '\0';
    for (int i = 0; i < 2 && at; i++) {
        at = strchr(at, ',');
        at = at ? at + 1 : NULL;
    }
    *ret_at = at && isdigit((unsigned char)*at) ? strtod(at, NULL) / 1e6 : -1;
    text[strcspn(text, "\n")] = '\0';
    *ret_text = text;
    return true;
}

bool kmsg_line(char *line, const char **ret_text, double *ret_at)
{
    /* Parses "<6>[ 5.140900] text". The time is there only with printk.time. */
    if (*line == '<') {
        char *end = strchr(line, '>');
        line = end ? end + 1 : line;
    }
    *ret_at = -1;
    if (*line == '[') {
        char *end, *number = line + 1 + strspn(line + 1, " ");
        double at = strtod(number, &end);
        if (end != number && *end == ']') {
            *ret_at = at;
            line = end + 1 + (end[1] == ' ');
        }
    }
    *ret_text = line;
    return *line != '\0';
}

static int from_device(struct log *log)
{
    char record[RECORD];
    const char *text;
    double at;
    auto_close int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (int i = 0; i < RECORDS_MAX; i++) {
        ssize_t n = read(fd, record, sizeof(record) - 1);
        if (n < 0 && (errno == EPIPE || errno == EINTR || errno == EINVAL))
            continue; /* the record was overwritten before it was read, or is longer than the buffer
                       */
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0)
            return -errno;
        if (n == 0)
            return 0;
        record[n] = '\0';
        if (kmsg_record(record, &text, &at))
            take(log, text, at);
    }
    return 0;
}

static int from_syslog(struct log *log)
{
    const char *text;
    double at;
    int size = klogctl(KLOG_SIZE, NULL, 0);
    if (size < 0)
        return -errno;
    if (size > 64 << 20)
        size = 64 << 20;
    auto_free char *all = malloc((size_t)size + 1);
    int n = all ? klogctl(KLOG_READ, all, size) : -1;
    if (n < 0)
        return all ? -errno : -ENOMEM;
    all[n] = '\0';
    for (char *save = NULL, *line = strtok_r(all, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        if (kmsg_line(line, &text, &at))
            take(log, text, at);
    }
    return 0;
}

static void put_kind(struct buf *out, const struct kind *kind, double now)
{
    char key[32];
    int from = kind->count > KEEP ? kind->count - KEEP : 0;
    snprintf(key, sizeof(key), "%s_count", kind->name);
    answer_put(out, key, "%d", kind->count);
    for (int i = from; i < kind->count; i++) {
        const struct kept *kept = &kind->kept[i % KEEP];
        double age = now - kept->at;
        answer_put_at(out, kind->name, i - from, "line", "%s", kept->line);
        if (kept->at >= 0)
            answer_put_at(out, kind->name, i - from, "age_s", "%.0f", age > 0 ? age : 0);
    }
}

static int run_kmsg(struct buf *out, const struct machine *m, const struct setting *s)
{
    static struct log log = {.kinds = {{.name = "oom", .words = oom_words},
                                       {.name = "hung", .words = hung_words},
                                       {.name = "lockup", .words = lockup_words},
                                       {.name = "xid", .words = xid_words}}};
    struct timespec now;
    const char *source = "/dev/kmsg";
    int device = from_device(&log), rc = device;
    if (rc < 0) {
        source = "syslog(2)";
        rc = from_syslog(&log);
    }
    if (rc < 0) /* if both ways fail, the device's error is reported: that is the one a user can
                   change */
        return device == -ENOENT ? rc : device;
    clock_gettime(CLOCK_BOOTTIME, &now);
    answer_put(out, "source", "%s", source);
    answer_put(out, "lines", "%ld", log.lines);
    for (size_t k = 0; k < 4; k++)
        put_kind(out, &log.kinds[k], (double)now.tv_sec);
    return 0;
}

static const struct probe probes[] = {{.name = "kmsg", .level = 1, .run = run_kmsg}};

const struct probe_table probes_kmsg = {probes, sizeof(probes) / sizeof(probes[0])};
