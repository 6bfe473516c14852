/* SPDX-License-Identifier: Apache-2.0
 *
 * copies: every copy of a library that this image has: what the loader takes, what it would take
 * from other folders, and what lies in Python packages, conda and CUDA installations. One file
 * counts once, however many names it has. Main thread.
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

/* Folders with Python packages, each once: of VIRTUAL_ENV, CONDA_PREFIX, PYTHONPATH, each bin in
 * PATH, the user and the system. */
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
        *packages; /* under site-packages: "nvidia/nccl/lib"; NULL-terminated or NULL */
    const char *const *folders; /* others, shell patterns: "/opt/conda/lib" */
    ask_f *ask;                 /* NULL: nothing but loading */
    /* Looks at the file itself, whether it can be loaded or not; NULL: nothing. */
    void (*look)(const char *path, const char *list, int i);
};

struct copy {
    char path[PATH_MAX]; /* the real one */
    char how[64];        /* "loader", "LD_LIBRARY_PATH", "Python package" ... */
    dev_t dev;
    ino_t ino;
};

struct copies {
    struct copy v[COPIES_MAX];
    int n, left; /* left: more than fit */
};

/* Adds the file unless it is there already; false: not a library of this machine, or known. */
bool copies_add(struct copies *c, const char *path, const char *how);

/* All of them, the loader's choice first when it finds one (its answer is in *loader). */
void copies_find(struct copies *ret, const struct library *lib, struct ask *loader);

/* Finds, asks and prints: "path" and "version" of the loader's choice or its "error", "load" when
 * it hung or crashed, then "lib.i.*" for each copy. */
void library_print(const struct library *lib);

/* The same for one file that somebody names. */
void library_print_file(const struct library *lib, const char *path);

#endif
