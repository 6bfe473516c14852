/* SPDX-License-Identifier: Apache-2.0
 *
 * library: optional shared libraries, found at run time (PMIx, NCCL, CUDA, MPI).
 *
 * Any thread. A library stays loaded once it was opened: several of them cannot be unloaded safely.
 */
#ifndef HVD_BASE_LIBRARY_H
#define HVD_BASE_LIBRARY_H

#include <limits.h>
#include <stddef.h>

#include "core/base/err.h"

/* One function to find: where its address goes. */
struct library_symbol {
    const char *name;
    void **ret;
};

/* Opens the first of names (NULL-terminated) that is there and finds every symbol in it. -ENOENT:
 * there is none of the libraries; -ENOSYS: it lacks a symbol. err has what the loader says. */
int library_open(const char *const *names, const struct library_symbol *symbols, size_t nsymbols,
                 void **ret_handle, struct err *err);

/* Functions that a library may have: NULL goes where it has none. */
void library_find(void *handle, const struct library_symbol *symbols, size_t nsymbols);

/* ---- what the process has mapped already, by whomever -----------------------------------------
 */

#define LIBRARY_COPIES 4

struct library_copies {
    int n; /* different files; those beyond LIBRARY_COPIES are counted, not listed */
    char path[LIBRARY_COPIES][PATH_MAX]; /* as the loader has them: library_mapped_open() */
};

/* Files that are mapped and have this name, as their soname or as the last part of their path. One
 * file counts once, whatever the number of its names. name may end in '*', which stands for any
 * end. Returns n. */
int library_mapped(const char *name, struct library_copies *ret);

/* A handle of a copy that library_mapped() has listed; loads nothing. NULL: it is gone. */
void *library_mapped_open(const char *path);

/* The file behind an open handle, with links resolved where that can be done. -ENOENT: the loader
 * does not know; -ENAMETOOLONG. */
int library_file(void *handle, char *dst, size_t size);

/* The same for the library (or program) that an address lies in, such as that of a function. */
int library_of(const void *address, char *dst, size_t size);

#endif
