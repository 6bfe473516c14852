/* SPDX-License-Identifier: Apache-2.0
 *
 * library: optional shared libraries, found at run time (PMIx, NCCL, CUDA, MPI).
 *
 * Any thread. A library stays loaded once it was opened, because several of them cannot be unloaded
 * safely.
 */
#ifndef HVD_BASE_LIBRARY_H
#define HVD_BASE_LIBRARY_H

#include <limits.h>
#include <stddef.h>

#include "core/base/err.h"

/* A function to look up, and where to store its address. */
struct library_symbol {
    const char *name;
    void **ret;
};

/* Opens the first of names (NULL-terminated) that can be loaded and looks up every symbol. -ENOENT:
 * none can be loaded; -ENOSYS: a symbol is missing. err has the loader's message. */
int library_open(const char *const *names, const struct library_symbol *symbols, size_t nsymbols,
                 void **ret_handle, struct err *err);

/* Looks up optional functions; stores NULL for a missing one. */
void library_find(void *handle, const struct library_symbol *symbols, size_t nsymbols);

/* ---- what the process has already mapped, by hvd or by others -------------------------------- */

#define LIBRARY_COPIES 4

struct library_copies {
    int n; /* number of different files; those beyond LIBRARY_COPIES are only counted */
    /* paths as the loader names them, for library_mapped_open() */
    char path[LIBRARY_COPIES][PATH_MAX];
};

/* Finds mapped files with this name as their soname or as the last part of their path. A file with
 * several names counts once. A '*' at the end of name stands for any ending. Returns n. */
int library_mapped(const char *name, struct library_copies *ret);

/* A handle of a copy that library_mapped() has listed. Loads nothing; NULL: it is no longer mapped.
 */
void *library_mapped_open(const char *path);

/* The path of the file behind an open handle, with links resolved if possible. -ENOENT: the loader
 * does not know it; -ENAMETOOLONG. */
int library_file(void *handle, char *dst, size_t size);

/* The path of the library or program that contains an address, such as that of a function. Results
 * as of library_file(). */
int library_of(const void *address, char *dst, size_t size);

/* The path of a file of this installation: in the folder lib beside the folder of libhvd.so (or of
 * the program that contains this code: hvdrun is in bin), if it is there, else in that folder
 * itself. Results as of library_file(). */
int library_beside(const char *name, char *dst, size_t size);

#endif
