/* SPDX-License-Identifier: Apache-2.0
 *
 * ld: where the dynamic loader looks for a library: LD_LIBRARY_PATH, ld.so.cache, the default
 * folders; and where it does not look but libraries lie nevertheless (Python packages, conda).
 *
 * The loader's own choice is asked for with dlopen() in a child (copies.c); this finds the other
 * copies. One thread.
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

/* cache: path of ld.so.cache, NULL for the system's. Never fails: what is not there is not there.
 */
void ld_init(struct ld *ld, const char *cache);
void ld_fini(struct ld *ld);

/* One found file; how: "LD_LIBRARY_PATH", "ld.so.cache", "default folder". False stops. */
typedef bool ld_found_f(void *arg, const char *path, const char *how);

/* Every file of this name in the loader's order. Files of another machine are left out. */
void ld_each(const struct ld *ld, const char *soname, ld_found_f *cb, void *arg);

/* What "soname", needed by the object at path, resolves to: RPATH, LD_LIBRARY_PATH, RUNPATH, cache,
 * default folders. 0, or -ENOENT. */
int ld_resolve(const struct ld *ld, const struct elf *object, const char *path, const char *soname,
               char *dst, size_t size);

/* Entries of the cache, pure: the i-th path whose key is soname; NULL when there are no more. */
const char *ld_cache_find(const char *cache, size_t len, const char *soname, int i);

#endif
