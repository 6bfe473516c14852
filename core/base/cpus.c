/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus: see cpus.h.
 */
#include "core/base/cpus.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/fd.h"

#define FILE_MAX 65536

int cpus_affinity(uint64_t ret_mask[CPUS_MASK_WORDS])
{
    /* The kernel asks for room for every processor that it supports; cpu_set_t has only 1024. */
    size_t size = CPU_ALLOC_SIZE(16384);
    cpu_set_t *set = calloc(1, size);
    int rc = !set ? -ENOMEM : sched_getaffinity(0, size, set) < 0 ? -errno : 0;
    if (rc == 0)
        memset(ret_mask, 0, CPUS_MASK_WORDS * sizeof(*ret_mask));
    for (int cpu = 0; rc == 0 && cpu < CPUS_MASK_BITS; cpu++)
        if (CPU_ISSET_S(cpu, size, set))
            ret_mask[cpu / 64] |= UINT64_C(1) << (cpu % 64);
    free(set);
    return rc;
}

int cpus_count(const uint64_t mask[CPUS_MASK_WORDS])
{
    int n = 0;
    for (int i = 0; i < CPUS_MASK_WORDS; i++)
        n += __builtin_popcountll(mask[i]);
    return n;
}

static int read_text(const char *root, const char *folder, const char *name, char **ret_text)
{
    char path[4096];
    int len = snprintf(path, sizeof(path), "%s%s/%s", root, folder, name);
    if (len < 0 || (size_t)len >= sizeof(path))
        return -ENAMETOOLONG;
    return fd_read_file(path, FILE_MAX, ret_text, NULL);
}

static int whole_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT_MAX;
    long long n = quota / period;
    return n < 1 ? 1 : n > INT_MAX ? INT_MAX : (int)n;
}

static int quota_v2(const char *root, const char *folder)
{
    auto_free char *text = NULL;
    long long quota, period;
    if (read_text(root, folder, "cpu.max", &text) < 0 ||
        sscanf(text, "%lld %lld", &quota, &period) != 2) /* "max" does not match */
        return INT_MAX;
    return whole_cpus(quota, period);
}

static int quota_v1(const char *root, const char *folder)
{
    auto_free char *quota = NULL, *period = NULL;
    if (read_text(root, folder, "cpu.cfs_quota_us", &quota) < 0 ||
        read_text(root, folder, "cpu.cfs_period_us", &period) < 0)
        return INT_MAX;
    return whole_cpus(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* The smallest quota among the cgroups from mount/path up to mount. */
static int smallest_up(const char *root, const char *mount, const char *path,
                       int (*quota)(const char *, const char *))
{
    char folder[4096];
    int len = snprintf(folder, sizeof(folder), "%s%s", mount, path);
    if (len < 0 || (size_t)len >= sizeof(folder))
        return INT_MAX;
    int smallest = INT_MAX;
    for (;;) {
        int n = quota(root, folder);
        if (n < smallest)
            smallest = n;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < strlen(mount))
            return smallest;
        *slash = '\0';
    }
}

/* The smallest quota for one line of /proc/self/cgroup: "id:controllers:path". */
static int quota_of_line(const char *root, char *line)
{
    char *controllers = strchr(line, ':');
    if (!controllers)
        return INT_MAX;
    controllers++;
    char *path = strchr(controllers, ':');
    if (!path)
        return INT_MAX;
    *path++ = '\0';
    if (!*controllers) {
        int n = smallest_up(root, "/sys/fs/cgroup", path, quota_v2);
        int hybrid = smallest_up(root, "/sys/fs/cgroup/unified", path, quota_v2);
        return n < hybrid ? n : hybrid;
    }
    char mount[256];
    bool has_cpu = false;
    snprintf(mount, sizeof(mount), "/sys/fs/cgroup/%s", controllers);
    for (char *save = NULL, *word = strtok_r(controllers, ",", &save); word;
         word = strtok_r(NULL, ",", &save))
        has_cpu = has_cpu || strcmp(word, "cpu") == 0;
    return has_cpu ? smallest_up(root, mount, path, quota_v1) : INT_MAX;
}

int cpus_quota(const char *root)
{
    auto_free char *text = NULL;
    if (read_text(root, "/proc/self", "cgroup", &text) < 0)
        return INT_MAX;
    int smallest = INT_MAX;
    for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        int n = quota_of_line(root, line);
        if (n < smallest)
            smallest = n;
    }
    return smallest;
}

int cpus_usable(void)
{
    uint64_t mask[CPUS_MASK_WORDS] = {0};
    int allowed = cpus_affinity(mask) == 0 ? cpus_count(mask) : 1;
    int quota = cpus_quota("");
    int n = allowed < quota ? allowed : quota;
    return n < 1 ? 1 : n;
}

bool cpus_may_spin(int ranks, int usable)
{
    return usable > 1 && ranks <= usable;
}

size_t cpus_cache_size(const char *root)
{
    size_t largest = 0;
    for (int i = 0; i < 8; i++) {
        char folder[128];
        auto_free char *text = NULL;
        snprintf(folder, sizeof(folder), "/sys/devices/system/cpu/cpu0/cache/index%d", i);
        if (read_text(root, folder, "size", &text) < 0)
            continue;
        char *unit;
        size_t n = strtoull(text, &unit, 10);
        n <<= *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
        if (n > largest)
            largest = n;
    }
    return largest;
}
