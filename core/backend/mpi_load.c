/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_load: see mpi_load.h.
 */
#include "core/backend/mpi_load.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/backend/mpi_version.h"
#include "core/base/env.h"

#define PLUGIN "libhvd_mpi.so"

/* ---- finding -------------------------------------------------------------------------------- */

/* Stores the folder of the library or program that contains this code, with a slash at the end. */
static void own_folder(char *dst, size_t size)
{
    Dl_info info;
    ssize_t n = 0;
    if (dladdr((const void *)mpi_load, &info) && info.dli_fname && strchr(info.dli_fname, '/'))
        snprintf(dst, size, "%s", info.dli_fname);
    else
        n = readlink("/proc/self/exe", dst, size - 1);
    if (n != 0)
        dst[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(dst, '/');
    if (slash)
        slash[1] = '\0';
}

static void plugin_path(char *dst, size_t size)
{
    char folder[3072];
    const char *named = env_get("MPI_PLUGIN");
    if (named) {
        snprintf(dst, size, "%s", named);
        return;
    }
    own_folder(folder, sizeof(folder));
    /* hvdrun lies in bin, beside lib. */
    snprintf(dst, size, "%s../lib/" PLUGIN, folder);
    if (access(dst, F_OK) < 0)
        snprintf(dst, size, "%s" PLUGIN, folder);
}

bool mpi_built(void)
{
    char path[4096];
    plugin_path(path, sizeof(path));
    return access(path, R_OK) == 0;
}

static void path_of(void *handle, char *dst, size_t size)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
        snprintf(dst, size, "%s", map->l_name);
}

/* Writes which libmpi the loader finds, for the error about a plugin that cannot be loaded: "; the
 * loader finds FILE (VERSION)". False: the loader finds none. */
static bool look_for_others(char *dst, size_t size)
{
    /* Open MPI 3 and later, MPICH and its kin, Open MPI 2 */
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpi.so.20"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *handle = dlopen(names[i], RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
        int (*library)(char *, int *) = NULL;
        char path[512] = "", text[8192] = "no version";
        int len = 0;
        if (!handle)
            continue;
        *(void **)&library = dlsym(handle, "MPI_Get_library_version");
        if (library)
            library(text, &len);
        path_of(handle, path, sizeof(path));
        snprintf(dst, size, "; the loader finds %s (%.*s)", path, (int)strcspn(text, ",\n"), text);
        return true;
    }
    return false;
}

static int cannot_load(const char *path, struct err *err)
{
    char found[640] = "", words[512];
    const char *why = dlerror();
    snprintf(words, sizeof(words), "%s", why ? why : "no reason given");
    bool other = look_for_others(found, sizeof(found));
    return err_set(err, ENOENT, "cannot load %s: %s%s. Look at LD_LIBRARY_PATH (doctor: %s)", path,
                   words, found, other ? "mpi-path-mismatch" : "mpi-load");
}

static int check(const struct mpi_plugin *p, const char *path, struct mpi_found *ret,
                 struct err *err)
{
    char text[256] = "";
    Dl_info info;
    if (p->version != MPI_PLUGIN_VERSION)
        return err_set(err, EINVAL, "%s is of another hvd (its table has version %u, not %d)", path,
                       p->version, MPI_PLUGIN_VERSION);
    if (dladdr(p->anchor, &info) && info.dli_fname)
        snprintf(ret->file, sizeof(ret->file), "%s", info.dli_fname);
    p->library(text, sizeof(text));
    if (!mpi_version_fits(p->family, p->major, text, ret->version, sizeof(ret->version)))
        return err_set(err, EINVAL,
                       "%s was compiled for %s, but %s is %s: look at LD_LIBRARY_PATH, or make hvd "
                       "with this MPI's mpicc (doctor: mpi-path-mismatch)",
                       path, p->built_for, ret->file, ret->version);
    ret->plugin = p;
    return 0;
}

static int load(struct mpi_found *ret, struct err *err)
{
    char path[4096];
    plugin_path(path, sizeof(path));
    if (access(path, F_OK) < 0)
        return err_set(err, ENOENT,
                       "there is no %s: hvd was built without MPI. Build it where mpicc is "
                       "(Debian: libopenmpi-dev), or name the file in HVD_MPI_PLUGIN (doctor: "
                       "mpi-load)",
                       path);
    /* RTLD_GLOBAL: MPI's own components look for MPI's symbols in the global scope. */
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!handle)
        return cannot_load(path, err);
    const struct mpi_plugin *p = dlsym(handle, MPI_PLUGIN_SYMBOL);
    if (!p)
        return err_set(err, EINVAL, "%s has no %s: it is no plugin of hvd", path,
                       MPI_PLUGIN_SYMBOL);
    return check(p, path, ret, err);
}

int mpi_load(struct mpi_found *ret, struct err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct mpi_found known;
    pthread_mutex_lock(&lock);
    struct mpi_found found = known;
    int rc = known.plugin ? 0 : load(&found, err);
    if (rc == 0)
        *ret = known = found;
    pthread_mutex_unlock(&lock);
    return rc;
}
