/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_find: see nccl_find.h.
 */
#include "core/backend/nccl_find.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/backend/doctor.h"
#include "core/base/env.h"
#include "core/base/library.h"

#define SONAME "libnccl.so.2"
#define TWO    "remove one of them " DOCTOR(CHECK_NCCL_MULTIPLE)

static const char *const origins[] = {
    [NCCL_MAPPED] = "mapped already",      [NCCL_IN_TORCH] = "inside torch",
    [NCCL_ASKED] = "HVD_NCCL_LIB",         [NCCL_OF_TORCH] = "beside torch",
    [NCCL_LOADER] = "found by the loader", [NCCL_PACKAGE] = "a Python package",
};

const char *nccl_origin_name(enum nccl_origin origin)
{
    return origins[origin];
}

struct places {
    struct nccl_place *v;
    int n;
};

/* A full list is no error: the first places are the best. */
static void add(struct places *p, enum nccl_origin origin, const char *path)
{
    if (p->n == NCCL_PLACES || strlen(path) >= sizeof(p->v->path))
        return;
    p->v[p->n].origin = origin;
    memcpy(p->v[p->n].path, path, strlen(path) + 1);
    p->n++;
}

static void add_file(struct places *p, enum nccl_origin origin, const char *folder,
                     const char *name)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (n > 0 && (size_t)n < sizeof(path) && access(path, R_OK) == 0)
        add(p, origin, path);
}

/* Where NVIDIA's wheels, and older wheels of torch, put libnccl.so.2 under site-packages. */
static const char *const layouts[] = {"nvidia/nccl/lib/" SONAME, "nvidia/cu13/lib/" SONAME,
                                      "torch/lib/" SONAME};

static void add_site(struct places *p, enum nccl_origin origin, const char *site)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++)
        add_file(p, origin, site, layouts[i]);
}

static bool same_file(const char *a, const char *b)
{
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

/* Adds libtorch_cuda.so if NCCL is linked into it and exported by it, as in old torch. Returns
 * whether it was added. */
static bool in_torch(struct places *p)
{
    struct library_copies torch;
    if (library_mapped("libtorch_cuda*", &torch) == 0)
        return false;
    for (int i = 0; i < torch.n && i < LIBRARY_COPIES; i++) {
        void *handle = library_mapped_open(torch.path[i]);
        void *get = handle ? dlsym(handle, "ncclGetVersion") : NULL;
        Dl_info where;
        /* The symbol may also be in a libnccl.so.2 that torch needs: that file is mapped then. */
        if (!get || !dladdr(get, &where) || !where.dli_fname ||
            !same_file(where.dli_fname, torch.path[i]))
            continue;
        add(p, NCCL_IN_TORCH, torch.path[i]);
        return true;
    }
    return false;
}

/* Whether LD_PRELOAD names this file. */
static bool is_preloaded(const char *file)
{
    char path[PATH_MAX];
    for (const char *s = getenv("LD_PRELOAD"); s && *s; s += strcspn(s, ": ")) {
        s += strspn(s, ": ");
        size_t n = strcspn(s, ": ");
        if (n > 0 && n < sizeof(path)) {
            memcpy(path, s, n);
            path[n] = '\0';
            if (same_file(path, file))
                return true;
        }
    }
    return false;
}

/* Of several mapped copies the one that LD_PRELOAD has put before all others: every call in this
 * process reaches it, also those of a torch that has mapped its own. Moves it to the front. */
static bool prefer_preloaded(struct library_copies *mapped)
{
    char file[PATH_MAX];
    void *get = dlsym(RTLD_DEFAULT, "ncclGetVersion");
    if (!get || library_of(get, file, sizeof(file)) < 0 || !is_preloaded(file))
        return false;
    for (int i = 0; i < mapped->n && i < LIBRARY_COPIES; i++) {
        if (!same_file(mapped->path[i], file))
            continue;
        memmove(mapped->path[0], mapped->path[i], sizeof(mapped->path[0]));
        mapped->n = 1;
        return true;
    }
    return false;
}

/* Adds the mapped copy. 1: added; 0: none is mapped; -EEXIST: two are. */
static int find_mapped(struct places *p, const char *asked, struct err *err)
{
    struct library_copies mapped;
    library_mapped(SONAME, &mapped);
    if (mapped.n == 0 && !in_torch(p))
        return 0;
    if (mapped.n > 1 && !prefer_preloaded(&mapped))
        return err_set(err, EEXIST, "%d copies of NCCL are loaded in this process, %s and %s: " TWO,
                       mapped.n, mapped.path[0], mapped.path[1]);
    if (mapped.n == 1)
        add(p, NCCL_MAPPED, mapped.path[0]);
    if (asked && !same_file(asked, p->v[0].path))
        return err_set(err, EEXIST,
                       "HVD_NCCL_LIB is %s, but this process has loaded %s already, and two copies "
                       "of NCCL do not work together: unset it, or " TWO,
                       asked, p->v[0].path);
    return 1;
}

/* site-packages/torch/lib/libtorch*.so: the packages are two folders above. */
static void add_torch(struct places *p)
{
    struct library_copies torch;
    char real[PATH_MAX];
    library_mapped("libtorch*", &torch);
    for (int i = 0; i < torch.n && i < LIBRARY_COPIES; i++) {
        if (!realpath(torch.path[i], real))
            continue;
        for (int up = 0; up < 3 && strrchr(real, '/'); up++)
            *strrchr(real, '/') = '\0';
        int before = p->n;
        add_site(p, NCCL_OF_TORCH, real[0] ? real : "/");
        if (p->n > before)
            return;
    }
}

static void add_prefix(struct places *p, const char *variable)
{
    const char *prefix = getenv(variable);
    char pattern[PATH_MAX];
    glob_t found;
    if (!prefix || prefix[0] != '/')
        return;
    int n = snprintf(pattern, sizeof(pattern), "%s/lib/python3*/site-packages", prefix);
    if (n < 0 || (size_t)n >= sizeof(pattern) || glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++)
        add_site(p, NCCL_PACKAGE, found.gl_pathv[i]);
    globfree(&found);
}

static void add_pythonpath(struct places *p)
{
    char site[PATH_MAX];
    for (const char *s = getenv("PYTHONPATH"); s && *s; s += strcspn(s, ":"), s += *s == ':') {
        size_t n = strcspn(s, ":");
        if (*s != '/' || n >= sizeof(site))
            continue;
        memcpy(site, s, n);
        site[n] = '\0';
        add_site(p, NCCL_PACKAGE, site);
    }
}

/* Adds the places that come after torch's. */
static int add_others(struct places *p)
{
    add(p, NCCL_LOADER, SONAME);
    add_prefix(p, "VIRTUAL_ENV");
    add_prefix(p, "CONDA_PREFIX");
    add_pythonpath(p);
    return p->n;
}

int nccl_find(struct nccl_place ret[NCCL_PLACES], struct err *err)
{
    struct places p = {.v = ret};
    const char *asked = env_get("NCCL_LIB");
    int rc = find_mapped(&p, asked, err);
    if (rc != 0)
        return rc;
    if (asked) {
        add(&p, NCCL_ASKED, asked); /* HVD_NCCL_LIB allows no other file */
        return p.n;
    }
    add_torch(&p);
    return add_others(&p);
}

int nccl_find_for(const char *site, struct nccl_place ret[NCCL_PLACES])
{
    struct places p = {.v = ret};
    const char *asked = env_get("NCCL_LIB");
    if (asked) {
        add(&p, NCCL_ASKED, asked);
        return p.n;
    }
    if (site)
        add_site(&p, NCCL_OF_TORCH, site);
    return add_others(&p);
}
