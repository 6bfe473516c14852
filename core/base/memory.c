/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: see memory.h.
 */
#include "core/base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cgroups.h"
#include "core/base/cleanup.h"

#define NONE UINT64_MAX

/* The number after the key, at the beginning of a line. 0: there is none. */
static uint64_t field(const char *text, const char *key)
{
    size_t len = strlen(key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && (line[len] == ' ' || line[len] == ':'))
            return strtoull(line + len + 1, NULL, 10);
    }
    return 0;
}

/* The one number of a file. NONE for "max" and where it cannot be read. */
static uint64_t number(const char *root, const char *folder, const char *name)
{
    auto_free char *text = NULL;
    char *end = NULL;
    if (cgroups_read(root, folder, name, &text) < 0)
        return NONE;
    unsigned long long n = strtoull(text, &end, 10);
    return end == text ? NONE : n;
}

/* Page cache that the kernel drops before it ends a process. Shared memory is not part of it. */
static uint64_t cache(const char *root, const char *folder, int version)
{
    auto_free char *text = NULL;
    if (cgroups_read(root, folder, "memory.stat", &text) < 0)
        return 0;
    return version == 2 ? field(text, "inactive_file") + field(text, "active_file")
                        : field(text, "total_inactive_file") + field(text, "total_active_file");
}

struct search {
    struct memory found;
    uint64_t swap; /* free on the machine */
};

static void take(struct search *s, uint64_t limit, uint64_t left, bool machine)
{
    if (left < s->found.left)
        s->found = (struct memory){limit, left, machine};
}

/* The swap space that a group may still use. */
static uint64_t swap_left(const struct search *s, const char *root, const char *folder, int version)
{
    uint64_t most = version == 2 ? number(root, folder, "memory.swap.max") : NONE;
    uint64_t used = most < NONE ? number(root, folder, "memory.swap.current") : 0;
    uint64_t own = used < most ? most - used : 0;
    return own < s->swap ? own : s->swap;
}

static void take_group(void *ctx, const char *root, const char *folder, int version)
{
    struct search *s = ctx;
    bool v2 = version == 2;
    uint64_t limit = number(root, folder, v2 ? "memory.max" : "memory.limit_in_bytes");
    uint64_t used = number(root, folder, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (limit == NONE || used == NONE)
        return;
    uint64_t dropped = cache(root, folder, version);
    used -= dropped < used ? dropped : used;
    take(s, limit, (used < limit ? limit - used : 0) + swap_left(s, root, folder, version), false);
}

bool memory_read(const char *root, struct memory *ret)
{
    struct search s = {.found = {.left = NONE}};
    auto_free char *machine = NULL;
    if (cgroups_read(root, "/proc", "meminfo", &machine) == 0) { /* in KiB */
        s.swap = field(machine, "SwapFree") << 10;
        uint64_t free_now = field(machine, "MemAvailable") << 10;
        if (free_now > 0)
            take(&s, field(machine, "MemTotal") << 10, free_now + s.swap, true);
    }
    cgroups_each(root, "memory", take_group, &s);
    if (s.found.left == NONE)
        return false;
    *ret = s.found;
    return true;
}

const char *memory_text(uint64_t bytes, char *dst, size_t size)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    size_t i = 0;
    for (; n >= 1024 && i + 1 < sizeof(units) / sizeof(units[0]); i++)
        n /= 1024;
    snprintf(dst, size, "%.*f %s", i ? 1 : 0, n, units[i]);
    return dst;
}
