/* SPDX-License-Identifier: Apache-2.0
 *
 * proc: see proc.h.
 */
#include "diagnostics/proc.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"

/* Parses a number or "unlimited". Returns the rest of the text, NULL when it is neither. */
static const char *limit_value(const char *s, uint64_t *ret)
{
    s += strspn(s, " \t");
    if (strncmp(s, "unlimited", 9) == 0) {
        *ret = PROC_UNLIMITED;
        return s + 9;
    }
    if (!isdigit((unsigned char)*s))
        return NULL;
    char *end;
    *ret = strtoull(s, &end, 10);
    return end;
}

int proc_limit_parse(const char *text, const char *name, uint64_t *ret_soft, uint64_t *ret_hard)
{
    size_t len = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, len) != 0 || line[len] != ' ')
            continue;
        uint64_t soft, hard;
        const char *rest = limit_value(line + len, &soft);
        if (!rest || !limit_value(rest, &hard))
            return -EINVAL;
        *ret_soft = soft;
        if (ret_hard)
            *ret_hard = hard;
        return 0;
    }
    return -ENOENT;
}

int proc_limit(const struct machine *m, const char *name, uint64_t *ret_soft, uint64_t *ret_hard)
{
    auto_free char *text = NULL;
    int rc = machine_read(m, "proc/self/limits", &text, NULL);
    return rc < 0 ? rc : proc_limit_parse(text, name, ret_soft, ret_hard);
}

bool proc_in_user_namespace(const struct machine *m)
{
    char line[128];
    unsigned long inside, outside, count;
    if (machine_line(m, line, sizeof(line), "proc/self/uid_map") < 0)
        return false;
    char *at = line;
    inside = strtoul(at, &at, 10);
    outside = strtoul(at, &at, 10);
    count = strtoul(at, &at, 10);
    return inside != 0 || outside != 0 || count < 4294967295UL;
}

int proc_capable(const struct machine *m, int cap)
{
    char hex[64], *end;
    int rc = machine_field(m, "proc/self/status", "CapEff", hex, sizeof(hex));
    if (rc < 0)
        return rc;
    uint64_t mask = strtoull(hex, &end, 16);
    if (end == hex)
        return -EINVAL;
    return (mask >> cap & 1) && !proc_in_user_namespace(m);
}

int64_t proc_uid(const struct machine *m)
{
    int64_t uid;
    return machine_field_int(m, "proc/self/status", "Uid", &uid) == 0 ? uid : -1;
}

bool proc_in_container(const struct machine *m)
{
    static const char *const marks[] = {"docker", "kubepods", "containerd", "libpod", "crio-"};
    if (machine_exists(m, ".dockerenv") || machine_exists(m, "run/.containerenv") ||
        machine_env(m, "KUBERNETES_SERVICE_HOST") || machine_env(m, "container"))
        return true;
    auto_free char *text = NULL;
    if (machine_read(m, "proc/self/cgroup", &text, NULL) < 0)
        return false;
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (strstr(text, marks[i]))
            return true;
    return false;
}

bool proc_ranks_run(const struct machine *m, int local_ranks)
{
    int n = answer_count(machine_answer(m, "ranks"), "rank");
    return n > 0 && n >= local_ranks;
}

static int cpus_range(const char **text, struct proc_cpus *set)
{
    char *end;
    if (!isdigit((unsigned char)**text))
        return -EINVAL;
    unsigned long first = strtoul(*text, &end, 10), last = first;
    if (*end == '-') {
        if (!isdigit((unsigned char)end[1]))
            return -EINVAL;
        last = strtoul(end + 1, &end, 10);
    }
    if (last < first || last >= PROC_CPUS_MAX)
        return -EINVAL;
    for (unsigned long i = first; i <= last; i++)
        set->bits[i / 64] |= UINT64_C(1) << (i % 64);
    *text = end;
    return 0;
}

int proc_cpus_parse(const char *text, struct proc_cpus *ret)
{
    struct proc_cpus set = {{0}};
    text += strspn(text, " \t");
    while (*text && *text != '\n') {
        if (cpus_range(&text, &set) < 0)
            return -EINVAL;
        if (*text == ',')
            text++;
        else if (*text && *text != '\n')
            return -EINVAL;
    }
    *ret = set;
    return 0;
}

int proc_cpus_count(const struct proc_cpus *set)
{
    int n = 0;
    for (size_t i = 0; i < PROC_CPUS_MAX / 64; i++)
        n += __builtin_popcountll(set->bits[i]);
    return n;
}

bool proc_cpus_meet(const struct proc_cpus *a, const struct proc_cpus *b)
{
    for (size_t i = 0; i < PROC_CPUS_MAX / 64; i++)
        if (a->bits[i] & b->bits[i])
            return true;
    return false;
}

int proc_allowed(const struct machine *m, const char *key, struct proc_cpus *ret)
{
    char list[4096];
    int rc = machine_field(m, "proc/self/status", key, list, sizeof(list));
    return rc < 0 ? rc : proc_cpus_parse(list, ret);
}
