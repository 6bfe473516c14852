/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_library: see mpi_library.h.
 */
#include "core/backend/mpi_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/env.h"
#include "core/base/library.h"

#define PLUGIN      "libhvd_mpi.so"
#define VERSION_MAX 8192 /* at least MPI_MAX_LIBRARY_VERSION_STRING of any MPI */

bool mpi_library_fits(const char *family, unsigned major, const char *text)
{
    /* Words of the first line. Spectrum MPI says that it is Open MPI, of another version than its
     * mpi.h; MVAPICH and its kin go by MPICH's ABI. */
    static const struct {
        const char *words, *family;
        bool majors; /* each major version has its own ABI, and its number follows */
    } kinds[] = {
        {"Spectrum MPI", MPI_FAMILY_OPEN, false}, {"FUJITSU MPI", MPI_FAMILY_OPEN, false},
        {"Open MPI v", MPI_FAMILY_OPEN, true},    {"Intel(R) MPI", MPI_FAMILY_MPICH, false},
        {"MVAPICH", MPI_FAMILY_MPICH, false},     {"HPE HMPT", MPI_FAMILY_MPICH, false},
        {"MPICH", MPI_FAMILY_MPICH, false},
    };
    size_t line = strcspn(text, "\n");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const char *at = strstr(text, kinds[i].words);
        if (at && at < text + line)
            return strcmp(family, kinds[i].family) == 0 &&
                   (!kinds[i].majors || strtoul(at + strlen(kinds[i].words), NULL, 10) == major);
    }
    return strcmp(family, MPI_FAMILY_OTHER) == 0 && line > 0;
}

static void plugin_path(char *dst, size_t size)
{
    const char *named = env_get("MPI_PLUGIN");
    if (named || library_beside(PLUGIN, dst, size) < 0)
        snprintf(dst, size, "%s", named ? named : PLUGIN);
}

bool mpi_library_built(void)
{
    char path[PATH_MAX + 16];
    plugin_path(path, sizeof(path));
    return access(path, R_OK) == 0;
}

/* Also names the libmpi that the loader finds instead, if there is one. */
static int cannot_load(const char *path, struct err *err)
{
    /* Open MPI 3 and later, MPICH and its kin, Open MPI 2 */
    static const char *const names[] = {"libmpi.so.40", "libmpi.so.12", "libmpi.so.20", NULL};
    int (*library)(char *, int *) = NULL;
    const struct library_symbol symbol = {"MPI_Get_library_version", (void **)&library};
    char words[512], file[500], text[VERSION_MAX] = "", found[640] = "";
    int len;
    const char *why = dlerror();
    void *handle;
    snprintf(words, sizeof(words), "%s", why ? why : "no reason given");
    if (library_open(names, &symbol, 1, &handle, NULL) == 0 &&
        library_file(handle, file, sizeof(file)) == 0) {
        library(text, &len);
        snprintf(found, sizeof(found), "; the loader finds %s (%.*s)", file,
                 (int)strcspn(text, ",\n"), text);
    }
    return err_set(err, ENOENT, "cannot load %s: %s%s. Look at LD_LIBRARY_PATH (doctor: %s)", path,
                   words, found, found[0] ? "mpi-path-mismatch" : "mpi-load");
}

static int check(const struct mpi_plugin *p, const char *path, struct mpi_library *ret,
                 struct err *err)
{
    char text[VERSION_MAX] = "";
    int len;
    if (p->version != MPI_PLUGIN_VERSION)
        return err_set(err, EINVAL, "%s is of another hvd (its table has version %u, not %d)", path,
                       p->version, MPI_PLUGIN_VERSION);
    library_of((const void *)p->library, ret->file, sizeof(ret->file));
    p->library(text, &len);
    snprintf(ret->version, sizeof(ret->version), "%.*s", (int)strcspn(text, ",\n"), text);
    if (!mpi_library_fits(p->family, p->major, text))
        return err_set(err, EINVAL,
                       "%s was compiled for %s, but %s is %s: look at LD_LIBRARY_PATH, or make hvd "
                       "with this MPI's mpicc (doctor: mpi-path-mismatch)",
                       path, p->built_for, ret->file, ret->version);
    ret->plugin = p;
    return 0;
}

int mpi_library_load(struct mpi_library *ret, struct err *err)
{
    char path[PATH_MAX + 16];
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
