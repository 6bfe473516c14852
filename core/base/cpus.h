/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus: how many processors this process may really use: its affinity, and what the CPU quotas of
 * its cgroups (v1 and v2, up to the root) leave of it. Any thread; reads files at each call.
 */
#ifndef HVD_BASE_CPUS_H
#define HVD_BASE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a mask of processors, as it is passed between processes. */
#define CPUS_MASK_BITS  1024
#define CPUS_MASK_WORDS (CPUS_MASK_BITS / 64)

/* The affinity of the calling thread as a mask; processors beyond its bits are left out. */
int cpus_affinity(uint64_t ret_mask[CPUS_MASK_WORDS]);

/* Bits that are set. */
int cpus_count(const uint64_t mask[CPUS_MASK_WORDS]);

/* Whole processors that the tightest quota allows: at least 1; INT_MAX when there is none or it
 * cannot be read. root is put before /proc and /sys: "" for this machine, a folder in tests. */
int cpus_quota(const char *root);

/* The smaller of affinity and quota, at least 1. */
int cpus_usable(void);

/* May each of so many ranks spin while it waits? Only where all of them have a processor of their
 * own. Where one is all there is, who is waited for needs it. */
bool cpus_may_spin(int ranks, int usable);

/* Bytes of the largest last-level cache, 0 when it cannot be read. root as above. */
size_t cpus_cache_size(const char *root);

#endif
