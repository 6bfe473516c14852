/* SPDX-License-Identifier: Apache-2.0
 *
 * record: see record.h.
 */
#include "tests/chaos/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"

/* Field 22 of /proc/self/stat, in ticks since the machine started. */
static unsigned long long start_time(void)
{
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    /* The program's name, which may hold anything, ends with the last ')'. */
    char *p = strrchr(text, ')');
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p ? strtoull(p + 1, NULL, 10) : 0;
}

int record_open(struct record *r, const char *dir)
{
    char path[4096];
    snprintf(r->uid, sizeof(r->uid), "%d-%llu", (int)getpid(), start_time());
    int n = snprintf(path, sizeof(path), "%s/%s.jsonl", dir, r->uid);
    if (n < 0 || (size_t)n >= sizeof(path))
        return -ENAMETOOLONG;
    r->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return r->fd < 0 ? -errno : 0;
}

void record_close(struct record *r)
{
    close(r->fd);
    r->fd = -1;
}

static void write_line(struct record *r, const char *text, size_t n)
{
    ssize_t rc;
    do
        rc = write(r->fd, text, n);
    while (rc < 0 && errno == EINTR);
    if (rc != (ssize_t)n) {
        fprintf(stderr, "worker: its record cannot be written: %s\n", strerror(errno));
        _exit(6);
    }
}

void record_line(struct record *r, const char *type, const char *format, ...)
{
    char text[2048];
    int n = snprintf(text, sizeof(text), "{\"t\": \"%s\", \"ms\": %" PRIu64 ", ", type,
                     clock_ns() / 1000000);
    va_list args;
    va_start(args, format);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    if ((size_t)n > sizeof(text) - 3)
        _exit(6);
    n += snprintf(text + n, sizeof(text) - (size_t)n, "}\n");
    write_line(r, text, (size_t)n);
}

void record_op(struct record *r, uint32_t epoch, const struct plan *p, int index, int rc,
               const struct codes_verdict *v)
{
    const struct plan_op *op = &p->ops[index];
    char sets[CODES_MAX_SETS * 48 + 1] = "";
    int at = 0;
    for (int i = 0; i < v->nsets; i++)
        at += snprintf(sets + at, sizeof(sets) - (size_t)at, "%s[%" PRIu32 ", %d, %" PRId64 "]",
                       i ? ", " : "", v->sets[i].mask, v->sets[i].divisor, v->sets[i].count);
    char bad[96] = "";
    if (v->bad)
        snprintf(bad, sizeof(bad), ", \"at\": %" PRId64 ", \"value\": \"%.17g\"", v->first_bad,
                 v->bad_value);
    record_line(r, "op",
                "\"step\": %" PRIu64 ", \"op\": %d, \"burst\": %d, \"e\": %" PRIu32
                ", \"name\": \"%s\", \"kind\": \"%s\", \"dtype\": \"%s\", \"do\": \"%s\", "
                "\"n\": %" PRId64 ", \"in_place\": %d, \"rc\": %d, \"hash\": \"%016" PRIx64
                "\", \"sets\": [%s], \"bad\": %" PRId64 "%s",
                p->step, index, op->burst, epoch, op->name, hvd_kind_name(op->kind),
                hvd_dtype_name(op->dtype), hvd_op_name(op->op), op->count, op->in_place, rc,
                v->hash, sets, v->bad, bad);
}

int record_fail(struct record *r, uint64_t step, const char *what, int rc)
{
    char text[256];
    snprintf(text, sizeof(text), "%s", hvd_error());
    for (char *p = text; *p; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ')
            *p = '\'';
    record_line(r, "fail", "\"step\": %" PRIu64 ", \"what\": \"%s\", \"rc\": %d, \"text\": \"%s\"",
                step, what, rc, text);
    fprintf(stderr, "worker: %s: %s (%d)\n", what, text, rc);
    return 3;
}
