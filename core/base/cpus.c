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

#include "core/base/cgroups.h"
#include "core/base/cleanup.h"

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
    if (cgroups_read(root, folder, "cpu.max", &text) < 0 ||
        sscanf(text, "%lld %lld", &quota, &period) != 2) /* "max" does not match */
        return INT_MAX;
    return whole_cpus(quota, period);
}

static int quota_v1(const char *root, const char *folder)
{
    auto_free char *quota = NULL, *period = NULL;
    if (cgroups_read(root, folder, "cpu.cfs_quota_us", &quota) < 0 ||
        cgroups_read(root, folder, "cpu.cfs_period_us", &period) < 0)
        return INT_MAX;
    return whole_cpus(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

static void take_smallest(void *ctx, const char *root, const char *folder, int version)
{
    int *smallest = ctx;
    int n = version == 1 ? quota_v1(root, folder) : quota_v2(root, folder);
    if (n < *smallest)
        *smallest = n;
}

int cpus_quota(const char *root)
{
    int smallest = INT_MAX;
    cgroups_each(root, "cpu", take_smallest, &smallest);
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
        if (cgroups_read(root, folder, "size", &text) < 0)
            continue;
        char *unit;
        size_t n = strtoull(text, &unit, 10);
        n <<= *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
        if (n > largest)
            largest = n;
    }
    return largest;
}
