/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus: how many processors this process may use: its affinity, limited by the CPU quotas of its
 * cgroups (v1 and v2, up to the root). Any thread; reads files at each call.
 */
#ifndef HVD_BASE_CPUS_H
#define HVD_BASE_CPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a processor mask that processes pass to each other. */
#define CPUS_MASK_BITS  1024
#define CPUS_MASK_WORDS (CPUS_MASK_BITS / 64)

/* Stores the affinity of the calling thread; leaves out processors whose number is CPUS_MASK_BITS
 * or more. 0 or -errno. */
int cpus_affinity(uint64_t ret_mask[CPUS_MASK_WORDS]);

/* How many bits are set. */
int cpus_count(const uint64_t mask[CPUS_MASK_WORDS]);

/* Whole processors that the smallest CPU quota allows, at least 1; INT_MAX without a quota, or when
 * none can be read. root is put before /proc and /sys: "" for this machine, a folder in tests. */
int cpus_quota(const char *root);

/* The smaller of affinity and quota, at least 1. */
int cpus_usable(void);

/* Returns whether each of this many ranks may spin while it waits: only if there is a processor for
 * each rank, and more than one in all. With a single processor, a spinning rank would take it from
 * other processes. */
bool cpus_may_spin(int ranks, int usable);

/* Bytes of the largest cache of processor 0, 0 when it cannot be read. root: as in cpus_quota(). */
size_t cpus_cache_size(const char *root);

#endif
