/* SPDX-License-Identifier: Apache-2.0
 *
 * ld: see ld.h. ld.so.cache is read in its current format ("glibc-ld.so.cache1.1", alone or after
 * the old format); every offset in it is untrusted.
 */
#include "diagnostics/prober/ld.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/fd.h"

#define CACHE_MAX   (64u << 20)
#define CACHE_MAGIC "glibc-ld.so.cache1.1"
#define OLD_MAGIC   "ld.so-1.7.0"

/* glibc's layout: magic, count, length of the strings, 20 reserved bytes, then entries of 24
 * bytes. */
#define HEADER 48
#define ENTRY  24

#if defined(__x86_64__)
#define CACHE_MACHINE 0x0300u
#elif defined(__aarch64__)
#define CACHE_MACHINE 0x0a00u
#else
#define CACHE_MACHINE 0u
#endif

static const char *const default_dirs[] = {
#if defined(__x86_64__)
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#elif defined(__aarch64__)
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#endif
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib"};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

void ld_init(struct ld *ld, const char *cache)
{
    *ld = (struct ld){.library_path = getenv("LD_LIBRARY_PATH")};
    fd_read_file(cache ? cache : "/etc/ld.so.cache", CACHE_MAX, &ld->cache, &ld->cache_len);
}

void ld_fini(struct ld *ld)
{
    free(ld->cache);
    *ld = (struct ld){0};
}

static uint32_t u32_at(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof(v));
    return v;
}

/* The part in the current format: at the start, or behind the old part at the next multiple of
 * 8. */
static const char *cache_start(const char *cache, size_t *len)
{
    size_t magic = strlen(CACHE_MAGIC);
    if (*len >= HEADER && memcmp(cache, CACHE_MAGIC, magic) == 0)
        return cache;
    if (*len < 16 || memcmp(cache, OLD_MAGIC, strlen(OLD_MAGIC)) != 0)
        return NULL;
    uint64_t skip = 16 + (uint64_t)u32_at(cache + 12) * 12;
    skip = (skip + 7) & ~(uint64_t)7;
    if (skip > *len || *len - skip < HEADER || memcmp(cache + skip, CACHE_MAGIC, magic) != 0)
        return NULL;
    *len -= skip;
    return cache + skip;
}

const char *ld_cache_find(const char *cache, size_t len, const char *soname, int i)
{
    const char *start = cache ? cache_start(cache, &len) : NULL;
    if (!start)
        return NULL;
    uint64_t n = u32_at(start + strlen(CACHE_MAGIC));
    for (uint64_t k = 0; k < n && HEADER + (k + 1) * ENTRY <= len; k++) {
        const char *entry = start + HEADER + k * ENTRY;
        uint32_t flags = u32_at(entry), key = u32_at(entry + 4), value = u32_at(entry + 8);
        if (CACHE_MACHINE && (flags & 0xff00u) != CACHE_MACHINE)
            continue;
        if (key >= len || value >= len || !memchr(start + key, '\0', len - key) ||
            !memchr(start + value, '\0', len - value) || strcmp(start + key, soname) != 0)
            continue;
        if (i-- == 0)
            return start + value;
    }
    return NULL;
}

static bool usable(const char *path)
{
    return elf_is_ours(path) == 0;
}

/* Takes the next folder of "a:b;c"; false at the end. An empty entry is the current folder. */
static bool next_dir(const char **list, char *dst, size_t size)
{
    if (!*list || !**list)
        return false;
    size_t n = strcspn(*list, ":;");
    snprintf(dst, size, "%.*s", n ? (int)n : 1, n ? *list : ".");
    *list += n;
    if (**list)
        (*list)++;
    return true;
}

void ld_each(const struct ld *ld, const char *soname, ld_found_f *cb, void *arg)
{
    char dir[PATH_MAX], path[PATH_MAX + 256];
    const char *list = ld->library_path, *hit;
    while (next_dir(&list, dir, sizeof(dir))) {
        snprintf(path, sizeof(path), "%s/%s", dir, soname);
        if (usable(path) && !cb(arg, path, "LD_LIBRARY_PATH"))
            return;
    }
    for (int i = 0; (hit = ld_cache_find(ld->cache, ld->cache_len, soname, i)); i++) {
        if (usable(hit) && !cb(arg, hit, "ld.so.cache"))
            return;
    }
    for (size_t i = 0; i < COUNT(default_dirs); i++) {
        snprintf(path, sizeof(path), "%s/%s", default_dirs[i], soname);
        if (usable(path) && !cb(arg, path, "default folder"))
            return;
    }
}

/* Replaces $ORIGIN and ${ORIGIN} by the object's folder. */
static void expand_origin(const char *dir, const char *origin, char *dst, size_t size)
{
    const char *at = strstr(dir, "$ORIGIN"), *brace = strstr(dir, "${ORIGIN}");
    const char *hit = brace ? brace : at;
    if (!hit) {
        snprintf(dst, size, "%s", dir);
        return;
    }
    snprintf(dst, size, "%.*s%s%s", (int)(hit - dir), dir, origin, hit + (brace ? 9 : 7));
}

static bool in_list(const char *list, const char *origin, const char *soname, char *dst,
                    size_t size)
{
    char dir[PATH_MAX], full[PATH_MAX + 256], path[2 * PATH_MAX];
    while (next_dir(&list, dir, sizeof(dir))) {
        expand_origin(dir, origin, full, sizeof(full));
        snprintf(path, sizeof(path), "%s/%s", full, soname);
        if (strlen(path) < size && usable(path)) {
            memcpy(dst, path, strlen(path) + 1);
            return true;
        }
    }
    return false;
}

struct first {
    char *dst;
    size_t size;
    bool found;
};

static bool take_first(void *arg, const char *path, const char *how)
{
    struct first *f = arg;
    snprintf(f->dst, f->size, "%s", path);
    f->found = true;
    return false;
}

int ld_resolve(const struct ld *ld, const struct elf *object, const char *path, const char *soname,
               char *dst, size_t size)
{
    char origin[PATH_MAX];
    snprintf(origin, sizeof(origin), "%s", path);
    char *slash = strrchr(origin, '/');
    if (slash)
        *slash = '\0';
    else
        snprintf(origin, sizeof(origin), ".");
    if (!object->runpath && in_list(object->rpath, origin, soname, dst, size))
        return 0;
    if (in_list(ld->library_path, origin, soname, dst, size) ||
        in_list(object->runpath, origin, soname, dst, size))
        return 0;
    struct first first = {dst, size, false};
    struct ld rest = *ld;
    rest.library_path = NULL;
    ld_each(&rest, soname, take_first, &first);
    return first.found ? 0 : -ENOENT;
}
