/* SPDX-License-Identifier: Apache-2.0
 *
 * library: see library.h.
 */
#include "core/base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int library_open(const char *const *names, const struct library_symbol *symbols, size_t nsymbols,
                 void **ret_handle, struct err *err)
{
    void *handle = NULL;
    const char *name = NULL;
    for (size_t i = 0; names[i] && !handle; i++) {
        name = names[i];
        handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    }
    if (!handle) {
        const char *why = dlerror();
        return err_set(err, ENOENT, "%s", why ? why : "no library to look for");
    }
    for (size_t i = 0; i < nsymbols; i++) {
        if (dlsym(handle, symbols[i].name))
            continue;
        dlclose(handle);
        return err_set(err, ENOSYS, "%s has no %s", name, symbols[i].name);
    }
    for (size_t i = 0; i < nsymbols; i++)
        *symbols[i].ret = dlsym(handle, symbols[i].name);
    *ret_handle = handle;
    return 0;
}

void library_find(void *handle, const struct library_symbol *symbols, size_t nsymbols)
{
    for (size_t i = 0; i < nsymbols; i++)
        *symbols[i].ret = dlsym(handle, symbols[i].name);
}

/* ---- mapped copies ---- */

struct search {
    const char *name;
    struct library_copies *found;
    struct {
        bool known; /* dev and ino are valid */
        dev_t dev;
        ino_t ino;
    } file[LIBRARY_COPIES];
};

/* Returns the DT_SONAME of a loaded object, NULL when it has none. The loader has relocated the
 * addresses in the object's dynamic section, except in the vDSO's. */
static const char *soname_of(const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dyn = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dyn = (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    }
    ElfW(Addr) strings = 0;
    ElfW(Xword) at = 0;
    for (; dyn && dyn->d_tag != DT_NULL; dyn++) {
        if (dyn->d_tag == DT_STRTAB)
            strings = dyn->d_un.d_ptr;
        else if (dyn->d_tag == DT_SONAME)
            at = dyn->d_un.d_val;
    }
    if (strings && strings < info->dlpi_addr)
        strings += info->dlpi_addr;
    return strings && at ? (const char *)(strings + at) : NULL;
}

static bool same_name(const char *name, const char *wanted)
{
    size_t n = strlen(wanted);
    return n > 0 && wanted[n - 1] == '*' ? strncmp(name, wanted, n - 1) == 0
                                         : strcmp(name, wanted) == 0;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void add_copy(struct search *s, const char *path)
{
    struct library_copies *c = s->found;
    struct stat st;
    bool known = stat(path, &st) == 0;
    int listed = c->n < LIBRARY_COPIES ? c->n : LIBRARY_COPIES;
    for (int i = 0; i < listed; i++) {
        if (strcmp(c->path[i], path) == 0 ||
            (known && s->file[i].known && s->file[i].dev == st.st_dev &&
             s->file[i].ino == st.st_ino))
            return;
    }
    if (c->n < LIBRARY_COPIES) {
        snprintf(c->path[c->n], sizeof(c->path[0]), "%s", path);
        s->file[c->n].known = known;
        s->file[c->n].dev = known ? st.st_dev : 0;
        s->file[c->n].ino = known ? st.st_ino : 0;
    }
    c->n++;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct search *s = arg;
    if (!info->dlpi_name || !info->dlpi_name[0])
        return 0; /* the program itself */
    const char *soname = soname_of(info);
    if ((soname && same_name(soname, s->name)) || same_name(base_of(info->dlpi_name), s->name))
        add_copy(s, info->dlpi_name);
    return 0;
}

int library_mapped(const char *name, struct library_copies *ret)
{
    struct search s = {.name = name, .found = ret};
    ret->n = 0;
    dl_iterate_phdr(look_at, &s);
    return ret->n;
}

void *library_mapped_open(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD | RTLD_NODELETE);
}

/* Copies path to dst, with links resolved if possible. */
static int real_file(const char *path, char *dst, size_t size)
{
    char real[PATH_MAX];
    if (realpath(path, real))
        path = real;
    if (strlen(path) >= size)
        return -ENAMETOOLONG;
    memcpy(dst, path, strlen(path) + 1);
    return 0;
}

int library_file(void *handle, char *dst, size_t size)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name || !map->l_name[0])
        return -ENOENT;
    return real_file(map->l_name, dst, size);
}

int library_of(const void *address, char *dst, size_t size)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname || !info.dli_fname[0])
        return -ENOENT;
    return real_file(info.dli_fname, dst, size);
}

int library_beside(const char *name, char *dst, size_t size)
{
    static const char here;
    char own[PATH_MAX];
    int rc = library_of(&here, own, sizeof(own));
    if (rc < 0)
        return rc;
    *strrchr(own, '/') = '\0';
    int n = snprintf(dst, size, "%s/../lib/%s", own, name);
    if (n < 0 || (size_t)n >= size || access(dst, F_OK) < 0)
        n = snprintf(dst, size, "%s/%s", own, name);
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}
