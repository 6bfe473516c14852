/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroup: see cgroup.h.
 */
#include "diagnostics/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/mounts.h"

/* Version 1 writes "no limit" as 2^63 bytes less one page: all values from here on mean that. */
#define V1_NO_LIMIT (INT64_C(1) << 62)

static const char *const controllers[CGROUP_KINDS] = {"memory", "cpu", "pids"};

/* The folder of a cgroup: the mount point, then the cgroup's path without the part that the
 * mount hides. A path outside the mount (of another cgroup namespace) becomes the mount itself. */
static void place(struct cgroup_place *ret, int version, const struct mount *mount,
                  const char *path, size_t path_len)
{
    const char *point = mount->point + 1;
    size_t root = strcmp(mount->root, "/") == 0 ? 0 : strlen(mount->root);
    if (path_len < root || strncmp(path, mount->root, root) != 0 ||
        (path_len > root && path[root] != '/') || memmem(path, path_len, "/..", 3))
        path_len = root = 0;
    path += root;
    path_len -= root;
    while (path_len && path[path_len - 1] == '/')
        path_len--;
    size_t top = strlen(point);
    if (top + path_len >= sizeof(ret->dir))
        path_len = 0;
    ret->version = version;
    ret->top = top;
    memcpy(ret->dir, point, top);
    memcpy(ret->dir + top, path, path_len);
    ret->dir[top + path_len] = '\0';
}

/* Finds the mount of a version 1 controller, or of the one hierarchy of version 2 (controller
 * NULL); false: there is none. */
static bool find_mount(const char *mountinfo, const char *controller, struct mount *ret)
{
    struct mount m;
    bool found = false;
    while (*mountinfo) {
        const char *end = strchrnul(mountinfo, '\n');
        if (!memmem(mountinfo, (size_t)(end - mountinfo), "cgroup", 6)) {
            mountinfo = *end ? end + 1 : end; /* most of the thousands of mounts on a node */
            continue;
        }
        if (!mounts_next(&mountinfo, &m))
            break;
        if (strcmp(m.type, controller ? "cgroup" : "cgroup2") != 0 ||
            (controller && !mount_has(m.super, controller)))
            continue;
        /* A mount below /sys/fs/cgroup is preferred to a bind mount elsewhere. */
        if (!found || strncmp(m.point, "/sys/fs/cgroup", 14) == 0)
            *ret = m;
        found = true;
    }
    return found;
}

/* For a line such as "4:memory,foo:/path": does its list name the controller? NULL: the line of
 * version 2. */
static bool line_has(const char *list, size_t len, const char *controller)
{
    char words[256];
    if (!controller)
        return len == 0;
    if (len == 0 || len >= sizeof(words))
        return false;
    memcpy(words, list, len);
    words[len] = '\0';
    return mount_has(words, controller);
}

/* Finds the path of the process's cgroup in the hierarchy of a controller (NULL: version 2); false:
 * there is none. */
static bool find_path(const char *self, const char *controller, const char **ret, size_t *ret_len)
{
    for (const char *line = self; *line;) {
        const char *end = strchrnul(line, '\n');
        const char *list = memchr(line, ':', (size_t)(end - line));
        const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
        if (path && line_has(list + 1, (size_t)(path - list - 1), controller)) {
            *ret = path + 1;
            *ret_len = (size_t)(end - path - 1);
            return true;
        }
        line = *end ? end + 1 : end;
    }
    return false;
}

int cgroup_parse(const char *self, const char *mountinfo, struct cgroup *ret)
{
    struct mount mount, mount2;
    const char *path = "/", *path2 = "/";
    size_t len = 1, len2 = 1;
    bool v1 = false;
    *ret = (struct cgroup){.mode = CGROUP_NONE};
    bool v2 = find_mount(mountinfo, NULL, &mount2);
    find_path(self, NULL, &path2, &len2);
    for (int i = 0; i < CGROUP_KINDS; i++) {
        if (find_path(self, controllers[i], &path, &len)) {
            bool there = find_mount(mountinfo, controllers[i], &mount);
            if (there)
                place(&ret->at[i], 1, &mount, path, len);
            v1 = v1 || there;
        } else if (v2) {
            place(&ret->at[i], 2, &mount2, path2, len2);
        }
    }
    ret->mode = v1 && v2 ? CGROUP_HYBRID : v1 ? CGROUP_V1 : v2 ? CGROUP_V2 : CGROUP_NONE;
    return ret->mode == CGROUP_NONE ? -ENOENT : 0;
}

int cgroup_find(const struct machine *m, struct cgroup *ret)
{
    auto_free char *self = NULL, *mountinfo = NULL;
    *ret = (struct cgroup){.mode = CGROUP_NONE};
    int rc = machine_read(m, "proc/self/cgroup", &self, NULL);
    if (rc == 0)
        rc = machine_read(m, "proc/self/mountinfo", &mountinfo, NULL);
    if (rc == 0)
        rc = cgroup_parse(self, mountinfo, ret);
    for (int i = 0; rc == 0 && i < CGROUP_KINDS; i++) {
        struct cgroup_place *at = &ret->at[i];
        if (at->version && !machine_exists(m, "%s", at->dir))
            at->dir[at->top] = '\0';
    }
    return rc;
}

/* One number of a file in a folder; CGROUP_NO_LIMIT for "max" and where it cannot be read. */
static uint64_t number(const struct machine *m, const char *dir, const char *file)
{
    int64_t v;
    if (machine_int(m, &v, "%s/%s", dir, file) < 0 || v < 0 || v >= V1_NO_LIMIT)
        return CGROUP_NO_LIMIT;
    return (uint64_t)v;
}

static int64_t counter(const struct machine *m, const char *dir, const char *file, const char *key)
{
    char path[CGROUP_PATH + 64];
    int64_t v;
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return machine_field_int(m, path, key, &v) == 0 ? v : -1;
}

/* Moves up to the parent; false at the top. */
static bool parent(char *dir, size_t top)
{
    char *slash = strrchr(dir, '/');
    if (!slash || (size_t)(slash - dir) < top)
        return false;
    *slash = '\0';
    return true;
}

int cgroup_memory(const struct machine *m, const struct cgroup *cg, struct cgroup_memory *ret)
{
    const struct cgroup_place *at = &cg->at[CGROUP_MEMORY];
    bool v2 = at->version == 2;
    char dir[CGROUP_PATH];
    if (!at->version)
        return -ENOENT;
    *ret = (struct cgroup_memory){CGROUP_NO_LIMIT, 0, CGROUP_NO_LIMIT, -1};
    ret->oom_kills = v2 ? counter(m, at->dir, "memory.events", "oom_kill")
                        : counter(m, at->dir, "memory.oom_control", "oom_kill");
    memcpy(dir, at->dir, sizeof(dir));
    do {
        uint64_t limit = number(m, dir, v2 ? "memory.max" : "memory.limit_in_bytes");
        uint64_t usage = number(m, dir, v2 ? "memory.current" : "memory.usage_in_bytes");
        if (limit == CGROUP_NO_LIMIT)
            continue;
        if (usage == CGROUP_NO_LIMIT)
            usage = 0;
        int64_t cache =
            counter(m, dir, "memory.stat", v2 ? "inactive_file" : "total_inactive_file");
        if (cache > 0)
            usage -= (uint64_t)cache < usage ? (uint64_t)cache : usage;
        uint64_t room = usage < limit ? limit - usage : 0;
        if (limit < ret->limit)
            ret->limit = limit;
        if (room < ret->room) {
            ret->room = room;
            ret->usage = usage;
        }
    } while (parent(dir, at->top));
    return 0;
}

/* CPUs that a folder's quota allows, 0: no quota. */
static double quota(const struct machine *m, const char *dir, bool v2)
{
    double used, period;
    if (v2) {
        char line[128], *end;
        if (machine_line(m, line, sizeof(line), "%s/cpu.max", dir) < 0)
            return 0;
        used = strtod(line, &end); /* "max" is no number */
        if (end == line)
            return 0;
        period = strtod(end, NULL);
    } else {
        int64_t q, p;
        if (machine_int(m, &q, "%s/cpu.cfs_quota_us", dir) < 0 ||
            machine_int(m, &p, "%s/cpu.cfs_period_us", dir) < 0)
            return 0;
        used = (double)q;
        period = (double)p;
    }
    return used > 0 && period > 0 && used / period < 1e6 ? used / period : 0;
}

static void count_periods(const struct machine *m, const char *dir, bool v2, struct cgroup_cpu *ret)
{
    ret->periods = counter(m, dir, "cpu.stat", "nr_periods");
    ret->throttled = counter(m, dir, "cpu.stat", "nr_throttled");
    ret->throttled_us = counter(m, dir, "cpu.stat", v2 ? "throttled_usec" : "throttled_time");
    if (!v2 && ret->throttled_us > 0)
        ret->throttled_us /= 1000; /* version 1 counts nanoseconds */
}

int cgroup_cpu(const struct machine *m, const struct cgroup *cg, struct cgroup_cpu *ret)
{
    const struct cgroup_place *at = &cg->at[CGROUP_CPU];
    bool v2 = at->version == 2;
    char dir[CGROUP_PATH];
    if (!at->version)
        return -ENOENT;
    *ret = (struct cgroup_cpu){0, -1, -1, -1};
    count_periods(m, at->dir, v2, ret);
    memcpy(dir, at->dir, sizeof(dir));
    do {
        double cpus = quota(m, dir, v2);
        if (cpus > 0 && (ret->cpus == 0 || cpus < ret->cpus)) {
            ret->cpus = cpus;
            count_periods(m, dir, v2, ret);
        }
    } while (parent(dir, at->top));
    return 0;
}

int cgroup_pids(const struct machine *m, const struct cgroup *cg, struct cgroup_pids *ret)
{
    const struct cgroup_place *at = &cg->at[CGROUP_PIDS];
    double fullest = -1;
    char dir[CGROUP_PATH];
    if (!at->version)
        return -ENOENT;
    *ret = (struct cgroup_pids){CGROUP_NO_LIMIT, 0};
    memcpy(dir, at->dir, sizeof(dir));
    do {
        uint64_t limit = number(m, dir, "pids.max");
        uint64_t current = number(m, dir, "pids.current");
        if (limit == CGROUP_NO_LIMIT || limit == 0 || current == CGROUP_NO_LIMIT)
            continue;
        if ((double)current / (double)limit > fullest) {
            fullest = (double)current / (double)limit;
            *ret = (struct cgroup_pids){limit, current};
        }
    } while (parent(dir, at->top));
    return 0;
}
