/* SPDX-License-Identifier: Apache-2.0
 *
 * memory: how much more memory this process may use before the kernel ends processes for lack of
 * it: the memory limits of its cgroups (v1 and v2, up to the root) and the machine's memory. The
 * ranks of a container share both. Any thread; reads files at each call.
 */
#ifndef HVD_BASE_MEMORY_H
#define HVD_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memory {
    uint64_t limit; /* bytes: the limit that is reached first: of a cgroup, or the machine's size */
    uint64_t left;  /* bytes until it is reached; page cache that the kernel can drop counts as
                       free, and so does free swap space */
    bool machine;   /* the limit is the machine's size */
};

/* False, without a result, if nothing can be read. root is put before /proc and /sys: "" for this
 * machine, a folder in tests. */
bool memory_read(const char *root, struct memory *ret);

/* Writes "1.5 MiB" to dst and returns dst. */
const char *memory_text(uint64_t bytes, char *dst, size_t size);

#endif
