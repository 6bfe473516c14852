/* SPDX-License-Identifier: Apache-2.0
 *
 * trace: see trace.h.
 */
#include "core/engine/trace.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "core/base/utf8.h"

static void put(struct buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(struct buf *out, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    buf_put(out, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

/* Length of the UTF-8 sequence at s; 0 when it is malformed. */
static size_t utf8(const unsigned char *s)
{
    size_t n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (s[0] >= 0xf5)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (!utf8_inside(s[i]))
            return 0;
    }
    if ((n == 3 && s[0] == 0xe0 && s[1] < 0xa0) || (n == 3 && s[0] == 0xed && s[1] > 0x9f) ||
        (n == 4 && s[0] == 0xf0 && s[1] < 0x90) || (n == 4 && s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* Writes the inside of a JSON string. A byte that is not UTF-8 becomes a question mark. */
static void put_text(struct buf *out, const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        size_t n = 1;
        if (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7f)
            put(out, "\\u%04x", *s);
        else if (*s < 0x80)
            buf_put(out, s, 1);
        else if ((n = utf8(s)) > 0)
            buf_put(out, s, n);
        else {
            buf_put(out, "?", 1);
            n = 1;
        }
        s += n;
    }
}

static void begin(struct trace *t, struct buf *out)
{
    if (t->any)
        buf_put(out, ",\n", 2);
    t->any = true;
}

static void put_ts(struct trace *t, struct buf *out, uint64_t ns)
{
    uint64_t since = ns > t->start_ns ? ns - t->start_ns : 0;
    put(out, "\"ts\":%llu.%03u", (unsigned long long)(since / 1000), (unsigned)(since % 1000));
}

int trace_init(struct trace *t, int rank, uint64_t start_ns, uint64_t start_wall_us,
               struct buf *out)
{
    *t = (struct trace){.rank = rank, .start_ns = start_ns, .table_size = 1024};
    t->table = calloc(t->table_size, sizeof(*t->table));
    if (!t->table)
        return -ENOMEM;
    begin(t, out);
    put(out,
        "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank %d\","
        "\"start_time_since_epoch_in_micros\":%llu}}",
        rank, (unsigned long long)start_wall_us);
    return 0;
}

void trace_fini(struct trace *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        free(t->processes[i].name);
    free(t->processes);
    free(t->table);
    *t = (struct trace){0};
}

static uint32_t *place(struct trace *t, const char *name, uint64_t hash)
{
    uint32_t i = (uint32_t)hash & (t->table_size - 1);
    while (t->table[i]) {
        const struct trace_process *p = &t->processes[t->table[i] - 1];
        if (p->hash == hash && (!name || strcmp(p->name, name) == 0))
            break;
        i = (i + 1) & (t->table_size - 1);
    }
    return &t->table[i];
}

static int grow(struct trace *t)
{
    uint32_t size = t->table_size * 2;
    uint32_t *table = calloc(size, sizeof(*table));
    if (!table)
        return -ENOMEM;
    free(t->table);
    t->table = table;
    t->table_size = size;
    for (uint32_t pid = 1; pid <= t->count; pid++) {
        uint32_t i = (uint32_t)t->processes[pid - 1].hash & (size - 1);
        while (table[i])
            i = (i + 1) & (size - 1);
        table[i] = pid;
    }
    return 0;
}

static uint32_t new_process(struct trace *t, const char *name, uint64_t hash)
{
    if (2 * (t->count + 1) > t->table_size && grow(t) < 0)
        return 0;
    if ((t->count & (t->count - 1)) == 0) {
        uint32_t room = t->count ? 2 * t->count : 1;
        struct trace_process *p = realloc(t->processes, room * sizeof(*p));
        if (!p)
            return 0;
        t->processes = p;
    }
    char *copy = strdup(name);
    if (!copy)
        return 0;
    t->processes[t->count] = (struct trace_process){.hash = hash, .name = copy};
    *place(t, name, hash) = ++t->count;
    return t->count;
}

/* The events that introduce a tensor. */
static void introduce(struct trace *t, uint32_t pid, const char *name, const struct timeline_op *op,
                      struct buf *out)
{
    begin(t, out);
    put(out, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"", pid);
    put_text(out, name);
    put(out,
        "\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%u,\"args\":{"
        "\"sort_index\":%u}}",
        pid, pid);
    if (op->set == 0)
        return;
    put(out, ",\n{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"labels\":\"",
        pid);
    put_text(out, op->set_text);
    put(out, "\"}}");
}

/* The tensor's pid. On first use also introduces it. */
static uint32_t process_of(struct trace *t, const struct timeline_op *op, struct buf *out)
{
    char name[HVD_MAX_NAME + 64], set[32] = "";
    const char *kind = hvd_kind_name(op->kind);
    size_t len = strlen(kind);
    bool prefixed = strncmp(op->name, kind, len) == 0 && op->name[len] == '.';
    if (op->set)
        snprintf(set, sizeof(set), " (set %d)", op->set);
    snprintf(name, sizeof(name), "%s%s%s%s", prefixed ? "" : kind, prefixed ? "" : ".", op->name,
             set);
    uint64_t hash = hash_str(name);
    uint32_t pid = *place(t, name, hash);
    if (pid)
        return pid;
    pid = new_process(t, name, hash);
    if (pid)
        introduce(t, pid, name, op, out);
    return pid;
}

static void put_phase(struct trace *t, struct buf *out, char ph, uint32_t pid, const char *prefix,
                      const char *name, uint64_t ns)
{
    begin(t, out);
    put(out, "{\"ph\":\"%c\",\"pid\":%u,\"tid\":0,", ph, pid);
    put_ts(t, out, ns);
    if (name) {
        put(out, ",\"name\":\"%s", prefix);
        put_text(out, name);
        put(out, "\"");
    }
    put(out, "}");
}

static void put_rank_mark(struct trace *t, struct buf *out, uint32_t pid, uint64_t ns)
{
    begin(t, out);
    put(out, "{\"ph\":\"X\",\"pid\":%u,\"tid\":0,\"dur\":0,\"name\":\"%d\",", pid, t->rank);
    put_ts(t, out, ns);
    put(out, "}");
}

static void put_end(struct trace *t, struct buf *out, uint32_t pid, const struct timeline_op *op)
{
    begin(t, out);
    put(out, "{\"ph\":\"E\",\"pid\":%u,\"tid\":0,", pid);
    put_ts(t, out, op->end_ns);
    put(out, ",\"args\":{");
    const char *comma = "";
    if (op->kind != HVD_BARRIER) {
        put(out, "\"dtype\":\"%s\",\"shape\":\"[", hvd_dtype_name(op->dtype));
        for (int i = 0; i < op->ndim; i++)
            put(out, "%s%lld", i ? ", " : "", (long long)op->shape[i]);
        put(out, "]\"");
        comma = ",";
    }
    if (op->set) {
        put(out, "%s\"set\":%d", comma, op->set);
        comma = ",";
    }
    if (op->status)
        put(out, "%s\"status\":%d", comma, op->status);
    put(out, "}}");
}

static void upper_kind(enum hvd_kind kind, char *dst, size_t size)
{
    const char *name = hvd_kind_name(kind);
    size_t i = 0;
    for (; i + 1 < size && name[i]; i++)
        dst[i] = (char)toupper((unsigned char)name[i]);
    dst[i] = 0;
}

void trace_op(struct trace *t, const struct timeline_op *op, struct buf *out)
{
    char kind[32];
    uint32_t pid = process_of(t, op, out);
    if (!pid)
        return;
    upper_kind(op->kind, kind, sizeof(kind));
    uint64_t ready = op->batch_ns ? op->batch_ns : op->end_ns;
    put_phase(t, out, 'B', pid, "NEGOTIATE_", kind, op->submit_ns);
    put_rank_mark(t, out, pid, op->submit_ns);
    put_phase(t, out, 'E', pid, NULL, NULL, ready);
    put_phase(t, out, 'B', pid, "", kind, ready);
    if (op->batch_ns && op->start_ns) {
        put_phase(t, out, 'B', pid, "", "QUEUE", op->batch_ns);
        put_phase(t, out, 'E', pid, NULL, NULL, op->start_ns);
        put_phase(t, out, 'B', pid, "", op->algorithm, op->start_ns);
        put_phase(t, out, 'E', pid, NULL, NULL, op->end_ns);
    }
    put_end(t, out, pid, op);
}

void trace_cycle(struct trace *t, uint64_t now, struct buf *out)
{
    begin(t, out);
    put(out, "{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"pid\":0,\"tid\":0,\"s\":\"g\",");
    put_ts(t, out, now);
    put(out, "}");
}

void trace_dropped(struct trace *t, uint64_t count, uint64_t now, struct buf *out)
{
    begin(t, out);
    put(out,
        "{\"ph\":\"i\",\"name\":\"%llu operations are missing here\",\"pid\":0,\"tid\":0,"
        "\"s\":\"g\",",
        (unsigned long long)count);
    put_ts(t, out, now);
    put(out, "}");
}
