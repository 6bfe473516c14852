/* SPDX-License-Identifier: Apache-2.0
 *
 * copies: finds every copy of a library in this image: the loader's choice, other copies in the
 * loader's folders, and those in Python packages, conda and CUDA installations. A file with several
 * names counts once. Main thread.
 */
#ifndef HVD_DIAGNOSTICS_PROBER_COPIES_H
#define HVD_DIAGNOSTICS_PROBER_COPIES_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "diagnostics/prober/ask.h"
#include "diagnostics/prober/ld.h"

#define COPIES_MAX 24
#define SITES_MAX  32

/* The folders with Python packages, without duplicates: of VIRTUAL_ENV, CONDA_PREFIX,
 * PYTHONPATH, each bin folder in PATH, the user and the system. */
struct sites {
    char *dir[SITES_MAX]; /* owned */
    int n;
};

void sites_find(struct sites *ret);
void sites_fini(struct sites *sites);

struct library {
    const char *const *sonames; /* NULL-terminated, the usual one first */
    const char *file;           /* shell pattern of its files: "libnccl.so*" */
    const char *const
        *packages; /* folders below site-packages: "nvidia/nccl/lib"; NULL-terminated or NULL */
    const char *const *folders; /* other folders, as shell patterns: "/opt/conda/lib" */
    ask_f *ask;                 /* NULL: the library is only loaded */
    /* Examines the file itself, whether it can be loaded or not; NULL: not needed. */
    void (*look)(const char *path, const char *list, int i);
};

struct copy {
    char path[PATH_MAX]; /* with links resolved */
    char how[64];        /* "loader", "LD_LIBRARY_PATH", "Python package" ... */
    dev_t dev;
    ino_t ino;
};

struct copies {
    struct copy v[COPIES_MAX];
    int n, left; /* left: how many did not fit */
};

/* Adds a file to the list. Returns false when the list has it already, when the file is no library
 * for this machine, or when the list is full (left then counts it). */
bool copies_add(struct copies *c, const char *path, const char *how);

/* Finds all copies. The loader's choice comes first if there is one; its answer is in *loader. */
void copies_find(struct copies *ret, const struct library *lib, struct ask *loader);

/* Finds, asks and prints. "path" and "version" are of the loader's choice, or "error" says why
 * it has none; "load" is printed when it hung or crashed; then "lib.i.*" for each copy. */
void library_print(const struct library *lib);

/* The same for one file that the user names. */
void library_print_file(const struct library *lib, const char *path);

#endif
