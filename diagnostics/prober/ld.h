/* SPDX-License-Identifier: Apache-2.0
 *
 * ld: finds libraries where the dynamic loader looks: LD_LIBRARY_PATH, ld.so.cache, the default
 * folders.
 *
 * The loader's own choice comes from dlopen() in a child (copies.c); this finds the other copies.
 * One thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_LD_H
#define HVD_DIAGNOSTICS_PROBER_LD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/prober/elf.h"

struct ld {
    char *cache; /* ld.so.cache, owned; NULL when there is none */
    size_t cache_len;
    const char *library_path; /* LD_LIBRARY_PATH */
};

/* Loads ld.so.cache from cache, or the system's when cache is NULL. Never fails: without a cache
 * nothing is found in it. */
void ld_init(struct ld *ld, const char *cache);
void ld_fini(struct ld *ld);

/* Called for each file found. how: "LD_LIBRARY_PATH", "ld.so.cache", "default folder". Returning
 * false ends the search. */
typedef bool ld_found_f(void *arg, const char *path, const char *how);

/* Finds every file of this name in the order in which the loader would. Files for another
 * machine are left out. */
void ld_each(const struct ld *ld, const char *soname, ld_found_f *cb, void *arg);

/* Resolves "soname", which the object at path needs: RPATH, LD_LIBRARY_PATH, RUNPATH, cache,
 * default folders. 0, or -ENOENT. */
int ld_resolve(const struct ld *ld, const struct elf *object, const char *path, const char *soname,
               char *dst, size_t size);

/* The i-th path in the cache whose key is soname; NULL when there are no more. Pure. */
const char *ld_cache_find(const char *cache, size_t len, const char *soname, int i);

#endif
