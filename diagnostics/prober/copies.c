/* SPDX-License-Identifier: Apache-2.0
 *
 * copies: see copies.h.
 */
#include "diagnostics/prober/copies.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/clock.h"
#include "diagnostics/prober/elf.h"
#include "diagnostics/prober/out.h"

/* Time limit for one copy; after one has hung, the next get less. */
#define ASK_MS      4000
#define ASK_LATE_MS 500

bool copies_add(struct copies *c, const char *path, const char *how)
{
    struct stat st;
    char real[PATH_MAX];
    if (!realpath(path, real) || stat(real, &st) < 0 || !S_ISREG(st.st_mode) ||
        elf_is_ours(real) < 0)
        return false;
    for (int i = 0; i < c->n; i++) {
        if (c->v[i].dev == st.st_dev && c->v[i].ino == st.st_ino)
            return false;
    }
    if (c->n == COPIES_MAX) {
        c->left++;
        return false;
    }
    struct copy *new = &c->v[c->n++];
    memcpy(new->path, real, strlen(real) + 1);
    snprintf(new->how, sizeof(new->how), "%s", how);
    new->dev = st.st_dev;
    new->ino = st.st_ino;
    return true;
}

static bool add_found(void *arg, const char *path, const char *how)
{
    copies_add(arg, path, how);
    return true;
}

static void add_glob(struct copies *c, const char *dir, const char *file, const char *how)
{
    char pattern[PATH_MAX];
    glob_t found;
    snprintf(pattern, sizeof(pattern), "%s/%s", dir, file);
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            copies_add(c, found.gl_pathv[i], how);
    }
    globfree(&found);
}

static void add_packages(struct copies *c, const struct library *lib)
{
    struct sites sites;
    char dir[PATH_MAX];
    if (!lib->packages)
        return;
    sites_find(&sites);
    for (int i = 0; i < sites.n; i++) {
        for (const char *const *p = lib->packages; *p; p++) {
            snprintf(dir, sizeof(dir), "%s/%s", sites.dir[i], *p);
            add_glob(c, dir, lib->file, "Python package");
        }
    }
    sites_fini(&sites);
}

static void add_conda(struct copies *c, const struct library *lib)
{
    const char *prefix = getenv("CONDA_PREFIX");
    char dir[PATH_MAX];
    if (prefix) {
        snprintf(dir, sizeof(dir), "%s/lib", prefix);
        add_glob(c, dir, lib->file, "conda");
    }
    add_glob(c, "/opt/conda/lib", lib->file, "conda");
}

void copies_find(struct copies *ret, const struct library *lib, struct ask *loader)
{
    struct ld ld;
    char path[PATH_MAX];
    ret->n = ret->left = 0;
    for (const char *const *name = lib->sonames; *name; name++) {
        struct ask other;
        bool first = name == lib->sonames;
        ask_library(first ? loader : &other, *name, lib->ask, ASK_MS);
        if (!first && ask_value(&other, "loaded", path, sizeof(path)))
            *loader = other;
        if (ask_value(loader, "loaded", path, sizeof(path)) && copies_add(ret, path, "loader"))
            break;
    }
    ld_init(&ld, NULL);
    for (const char *const *name = lib->sonames; *name; name++)
        ld_each(&ld, *name, add_found, ret);
    ld_fini(&ld);
    add_packages(ret, lib);
    add_conda(ret, lib);
    for (const char *const *dir = lib->folders; dir && *dir; dir++)
        add_glob(ret, *dir, lib->file, "other folder");
}

static bool late(const struct ask *a)
{
    char state[64];
    return ask_value(a, "state", state, sizeof(state)) && strcmp(state, "timeout") == 0;
}

static void print_copy(const struct library *lib, int i, const struct copy *c, const struct ask *a)
{
    out_at("lib", i, "path", "%s", c->path);
    out_at("lib", i, "how", "%s", c->how);
    ask_print(a, "lib", i);
    if (lib->look)
        lib->look(c->path, "lib", i);
}

void library_print(const struct library *lib)
{
    static struct copies copies;
    static const char *const keys[][2] = {
        /* key of a copy, key of the whole answer (whose "state" has another meaning) */
        {"version", "version"},
        {"error", "error"},
        {"state", "load"},
        {"devices", "devices"}};
    struct ask loader, other;
    char value[4096];
    int ms = ASK_MS;
    copies_find(&copies, lib, &loader);
    bool loaded = copies.n && strcmp(copies.v[0].how, "loader") == 0;
    if (loaded)
        out_put("path", "%s", copies.v[0].path);
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++) {
        if (ask_value(&loader, keys[k][0], value, sizeof(value)))
            out_put(keys[k][1], "%s", value);
    }
    if (late(&loader))
        ms = ASK_LATE_MS;
    for (int i = 0; i < copies.n; i++) {
        if (i == 0 && loaded) {
            print_copy(lib, i, &copies.v[i], &loader);
            continue;
        }
        ask_library(&other, copies.v[i].path, lib->ask, ms);
        if (late(&other))
            ms = ASK_LATE_MS;
        print_copy(lib, i, &copies.v[i], &other);
    }
    if (copies.left)
        out_put("left_out", "%d", copies.left);
}

void library_print_file(const struct library *lib, const char *path)
{
    static struct copies copies;
    struct ask a;
    ask_library(&a, path, lib->ask, ASK_MS);
    if (!copies_add(&copies, path, "named"))
        snprintf(copies.v[0].path, sizeof(copies.v[0].path), "%s", path);
    snprintf(copies.v[0].how, sizeof(copies.v[0].how), "named");
    print_copy(lib, 0, &copies.v[0], &a);
}
