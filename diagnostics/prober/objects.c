/* SPDX-License-Identifier: Apache-2.0
 *
 * objects: the libraries that extensions need, and whether they can be found: libhvd.so, Horovod's
 * and torch's libraries; see probes.h. Files are read, nothing is loaded.
 */
#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "diagnostics/prober/copies.h"
#include "diagnostics/prober/libs.h"
#include "diagnostics/prober/out.h"
#include "diagnostics/prober/probes.h"

/* Needed libraries that are reported on a line of their own. */
static const struct {
    const char *key, *prefix;
} words[] = {
    {"nccl", "libnccl.so"},   {"mpi", "libmpi.so"},         {"cudart", "libcudart.so"},
    {"cuda", "libcuda.so"},   {"torch", "libtorch.so"},     {"gloo", "libgloo.so"},
    {"hwloc", "libhwloc.so"}, {"stdcxx", "libstdc++.so.6"},
};

/* Libraries that torch and TensorFlow have loaded before their extensions: no search rule finds
 * them, and none has to. */
static bool brought(const char *name)
{
    static const char *const prefixes[] = {"libtorch", "libc10", "libtensorflow", "libpython",
                                           "_pywrap_"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(*prefixes); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    }
    return false;
}

static void put_needed(const struct elf *e, const struct ld *ld, const char *path, int i)
{
    char where[PATH_MAX], missing[512] = "";
    size_t at = 0;
    for (int k = 0; k < e->nneeded; k++) {
        bool there = ld_resolve(ld, e, path, e->needed[k], where, sizeof(where)) == 0;
        for (size_t w = 0; w < sizeof(words) / sizeof(*words); w++) {
            if (strncmp(e->needed[k], words[w].prefix, strlen(words[w].prefix)) == 0)
                out_at("object", i, words[w].key, "%s", there ? where : "missing");
        }
        if (!there && !brought(e->needed[k]) && at < sizeof(missing))
            at += (size_t)snprintf(missing + at, sizeof(missing) - at, "%s%s", at ? " " : "",
                                   e->needed[k]);
    }
    if (at)
        out_at("object", i, "missing", "%s", missing);
}

static void put_object(const struct ld *ld, const char *kind, const char *path, int i)
{
    struct elf e;
    char version[32], cuda[16];
    out_at("object", i, "path", "%s", path);
    out_at("object", i, "kind", "%s", kind);
    int rc = elf_map(&e, path);
    if (rc < 0) {
        out_at("object", i, "error", "%s", strerror(-rc));
        return;
    }
    if (e.glibc[0])
        out_at("object", i, "glibc", "%s", e.glibc);
    if (e.glibcxx[0])
        out_at("object", i, "glibcxx", "%s", e.glibcxx);
    put_needed(&e, ld, path, i);
    bool needs_nccl = false;
    for (int k = 0; k < e.nneeded; k++)
        needs_nccl |= strncmp(e.needed[k], "libnccl.so", 10) == 0;
    elf_unmap(&e);
    /* a library with NCCL linked in contains NCCL's version text */
    if (!needs_nccl && (strcmp(kind, "horovod") == 0 || strstr(path, "libtorch_cuda")) &&
        libs_nccl_text(path, version, cuda))
        out_at("object", i, "nccl_inside", "%s", version);
}

struct want {
    const char *kind, *pattern; /* under site-packages */
};

static const struct want wants[] = {
    {"hvd", "hvd/libhvd.so*"},
    {"horovod", "horovod/*/mpi_lib*.so"},
    {"torch", "torch/lib/libtorch_cuda.so"},
    {"torch", "torch/lib/libtorch_cpu.so"},
};

static bool beside(const char *file, char dst[PATH_MAX])
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return false;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    n = snprintf(dst, PATH_MAX, "%s/%s", self, file);
    return n < PATH_MAX && access(dst, R_OK) == 0;
}

/* The libhvd.so of the build folder or installation that this program belongs to. */
static bool own_library(char dst[PATH_MAX])
{
    return beside("libhvd.so", dst) || beside("../lib/libhvd.so", dst) ||
           beside("../libhvd.so", dst);
}

int probe_elf(const char *path)
{
    static struct copies found;
    struct ld ld;
    struct sites sites;
    char name[PATH_MAX];
    int n = 0;
    struct utsname name_of;
    out_put("glibc", "%s", gnu_get_libc_version());
    if (uname(&name_of) == 0)
        out_put("machine", "%s", name_of.machine);
    ld_init(&ld, NULL);
    if (path) {
        put_object(&ld, "named", path, 0);
        ld_fini(&ld);
        return 0;
    }
    if (own_library(name) && copies_add(&found, name, "hvd"))
        put_object(&ld, "hvd", name, n++);
    sites_find(&sites);
    for (int s = 0; s < sites.n; s++) {
        for (size_t w = 0; w < sizeof(wants) / sizeof(*wants); w++) {
            glob_t hits;
            snprintf(name, sizeof(name), "%s/%s", sites.dir[s], wants[w].pattern);
            if (glob(name, 0, NULL, &hits) == 0) {
                for (size_t i = 0; i < hits.gl_pathc; i++) {
                    if (copies_add(&found, hits.gl_pathv[i], wants[w].kind))
                        put_object(&ld, wants[w].kind, hits.gl_pathv[i], n++);
                }
            }
            globfree(&hits);
        }
    }
    sites_fini(&sites);
    ld_fini(&ld);
    return 0;
}

/* ---- hvd ---- */

static void ask_hvd(void *handle)
{
    const char *(*version)(void) = (const char *(*)(void))(intptr_t)dlsym(handle, "hvd_version");
    if (version)
        out_put("version", "%s", version());
    else
        out_put("error", "it has no hvd_version");
}

/* The libhvd.so of the Python package hvd, in any folder of packages. */
static bool in_packages(char dst[PATH_MAX])
{
    struct sites sites;
    bool found = false;
    sites_find(&sites);
    for (int i = 0; i < sites.n && !found; i++)
        found = snprintf(dst, PATH_MAX, "%s/hvd/libhvd.so", sites.dir[i]) < PATH_MAX &&
                access(dst, R_OK) == 0;
    sites_fini(&sites);
    return found;
}

int probe_hvd(const char *path)
{
    char name[PATH_MAX];
    struct ask a;
    const char *file = path;
    if (!file && (own_library(name) || in_packages(name)))
        file = name;
    ask_library(&a, file ? file : "libhvd.so.0", ask_hvd, 4000);
    ask_print(&a, "lib", 0);
    return 0;
}
