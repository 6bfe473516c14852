/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_api: see nccl_api.h.
 */
#include "core/backend/nccl_api.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "core/backend/doctor.h"
#include "core/base/cleanup.h"
#include "core/base/env.h"
#include "core/base/library.h"

#define LOAD   DOCTOR(CHECK_NCCL_LOAD)
#define SONAME "libnccl.so.2"
#define TWO    "remove one of them " DOCTOR(CHECK_NCCL_MULTIPLE)

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

int nccl_version_decode(int code)
{
    if (code <= 0)
        return 0;
    if (code >= 10000)
        return code;
    return code / 1000 * 10000 + code / 100 % 10 * 100 + code % 100;
}

const char *nccl_version_text(int version, char dst[16])
{
    snprintf(dst, 16, "%d.%d.%d", version / 10000 % 1000, version / 100 % 100, version % 100);
    return dst;
}

const char *nccl_api_name(const struct nccl_api *api, char *dst, size_t size)
{
    snprintf(dst, size, "%s (%s, %s)", api->text, api->path, nccl_origin_name(api->origin));
    return dst;
}

/* ---- finding ---- */

static const char *const origins[] = {
    [NCCL_MAPPED] = "mapped already",      [NCCL_IN_TORCH] = "inside torch",
    [NCCL_ASKED] = "HVD_NCCL_LIB",         [NCCL_OF_TORCH] = "beside torch",
    [NCCL_LOADER] = "found by the loader", [NCCL_PACKAGE] = "a Python package",
};

const char *nccl_origin_name(enum nccl_origin origin)
{
    return origins[origin];
}

/* A full list is no error: the first places are the best. */
static void add(struct nccl_places *p, enum nccl_origin origin, const char *path)
{
    if (p->n == (int)COUNT(p->v) || strlen(path) >= sizeof(p->v->path))
        return;
    p->v[p->n].origin = origin;
    memcpy(p->v[p->n].path, path, strlen(path) + 1);
    p->n++;
}

static void add_file(struct nccl_places *p, enum nccl_origin origin, const char *folder,
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

static void add_site(struct nccl_places *p, enum nccl_origin origin, const char *site)
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
static bool in_torch(struct nccl_places *p)
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

/* Whether LD_PRELOAD names this file by its path; a bare name is not recognized. */
static bool is_preloaded(const char *file)
{
    const char *value = getenv("LD_PRELOAD");
    auto_free char *list = strdup(value ? value : "");
    char *save;
    for (char *s = list ? strtok_r(list, ": ", &save) : NULL; s; s = strtok_r(NULL, ": ", &save))
        if (same_file(s, file))
            return true;
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

/* Adds the mapped copy, if there is one. -EEXIST as find(). */
static int find_mapped(struct nccl_places *p, const char *asked, struct err *err)
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
    return 0;
}

/* site-packages/torch/lib/libtorch*.so: the packages are two folders above. */
static void add_torch(struct nccl_places *p)
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

static void add_prefix(struct nccl_places *p, const char *variable)
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

static void add_pythonpath(struct nccl_places *p)
{
    const char *value = getenv("PYTHONPATH");
    auto_free char *list = strdup(value ? value : "");
    char *save;
    for (char *s = list ? strtok_r(list, ":", &save) : NULL; s; s = strtok_r(NULL, ":", &save))
        if (*s == '/')
            add_site(p, NCCL_PACKAGE, s);
}

/* Adds the places that come after torch's. HVD_NCCL_LIB allows no other file. */
static void add_others(struct nccl_places *p, const char *asked)
{
    add(p, asked ? NCCL_ASKED : NCCL_LOADER, asked ? asked : SONAME);
    if (asked)
        return;
    add_prefix(p, "VIRTUAL_ENV");
    add_prefix(p, "CONDA_PREFIX");
    add_pythonpath(p);
}

/* The files of NCCL's that this process may load, best first. If a copy is mapped, it is the only
 * one. -EEXIST: several are mapped and none is LD_PRELOAD's, or HVD_NCCL_LIB names another file
 * than the mapped one. */
static int find(struct nccl_places *ret, struct err *err)
{
    const char *asked = env_get("NCCL_LIB");
    ret->n = 0;
    int rc = find_mapped(ret, asked, err);
    if (rc < 0 || ret->n > 0)
        return rc;
    if (!asked)
        add_torch(ret);
    add_others(ret, asked);
    return 0;
}

void nccl_find_for(const char *site, struct nccl_places *ret)
{
    const char *asked = env_get("NCCL_LIB");
    ret->n = 0;
    if (site && !asked)
        add_site(ret, NCCL_OF_TORCH, site);
    add_others(ret, asked);
}

/* ---- the CUDA version that NCCL was built for ---- */

int nccl_build_parse(const void *bytes, size_t n)
{
    static const char version[] = "NCCL version ";
    const char *at = bytes, *end = at + n;
    while (n > 0 && (at = memmem(at, (size_t)(end - at), version, sizeof(version) - 1)) != NULL) {
        char text[64] = "";
        int major = 0, minor = -1;
        at += sizeof(version) - 1;
        memcpy(text, at, (size_t)(end - at) < sizeof(text) ? (size_t)(end - at) : sizeof(text) - 1);
        if (sscanf(text, "%*[0-9.]+cuda%3d.%3d", &major, &minor) == 2 && major > 0 && minor >= 0 &&
            minor < 100)
            return major * 1000 + minor * 10;
    }
    return 0;
}

/* Whether n bytes from `at` on are within a file of this size. */
static bool holds(size_t size, uint64_t at, uint64_t n)
{
    return at <= size && n <= size - at;
}

/* Searches .rodata: the code for GPUs is hundreds of megabytes. */
static int build_of_bytes(const uint8_t *file, size_t size)
{
    static const char rodata[] = ".rodata";
    Elf64_Ehdr head;
    Elf64_Shdr names, s;
    if (size < sizeof(head))
        return 0;
    memcpy(&head, file, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_ident[EI_DATA] != ELFDATA2LSB || head.e_shentsize != sizeof(s) ||
        head.e_shstrndx >= head.e_shnum || !holds(size, head.e_shoff, head.e_shnum * sizeof(s)))
        return 0;
    const uint8_t *sections = file + head.e_shoff;
    memcpy(&names, sections + head.e_shstrndx * sizeof(s), sizeof(s));
    for (int i = 0; i < head.e_shnum; i++) {
        memcpy(&s, sections + (size_t)i * sizeof(s), sizeof(s));
        uint64_t name = names.sh_offset + s.sh_name;
        if (holds(size, name, sizeof(rodata)) && memcmp(file + name, rodata, sizeof(rodata)) == 0)
            return holds(size, s.sh_offset, s.sh_size)
                       ? nccl_build_parse(file + s.sh_offset, s.sh_size)
                       : 0;
    }
    return 0;
}

int nccl_build_of(const char *path)
{
    struct stat st;
    auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size <= 0)
        return 0;
    size_t size = (size_t)st.st_size;
    void *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED)
        return 0;
    int cuda = build_of_bytes(file, size);
    munmap(file, size);
    return cuda;
}

/* ---- loading ---- */

static int check_version(struct nccl_api *api, struct err *err)
{
    char name[PATH_MAX + 64];
    int code = 0, rc = api->ncclGetVersion(&code);
    api->version = rc == NCCL_ABI_SUCCESS ? nccl_version_decode(code) : 0;
    if (api->version == 0)
        return err_set(err, ELIBBAD, "%s: ncclGetVersion answers %d, version %d " LOAD, api->path,
                       rc, code);
    nccl_version_text(api->version, api->text);
    if (api->version < NCCL_OLDEST)
        return err_set(err, ENOTSUP,
                       "NCCL %s is too old: hvd needs NCCL 2.14 or newer, which HVD_NCCL_LIB=file "
                       "can name " DOCTOR(CHECK_NCCL_KNOWN_BAD),
                       nccl_api_name(api, name, sizeof(name)));
    return 0;
}

#define ROW(name, result, arguments) {#name, (void **)&api->name},

/* Checks the version first: "too old" is a better reason than a missing function. */
static int fill(void *handle, struct nccl_api *api, struct err *err)
{
    const struct library_symbol functions[] = {NCCL_ABI_FUNCTIONS(ROW)};
    library_find(handle, functions, COUNT(functions));
    int rc = api->ncclGetVersion ? check_version(api, err) : 0;
    for (size_t i = 0; i < COUNT(functions) && rc == 0; i++)
        if (!*functions[i].ret)
            rc = err_set(err, ELIBBAD, "%s has no %s: it is no NCCL of 2.14 or newer " LOAD,
                         api->path, functions[i].name);
    return rc;
}

int nccl_api_open(const struct nccl_place *place, struct nccl_api *ret, struct err *err)
{
    struct nccl_api api = {.origin = place->origin};
    bool mapped = place->origin == NCCL_MAPPED || place->origin == NCCL_IN_TORCH;
    void *handle = mapped ? library_mapped_open(place->path)
                          : dlopen(place->path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *why = dlerror();
        return err_set(err, access(place->path, F_OK) == 0 ? ELIBBAD : ENOENT,
                       "NCCL does not load: %s " LOAD, why ? why : place->path);
    }
    if (library_file(handle, api.path, sizeof(api.path)) < 0)
        snprintf(api.path, sizeof(api.path), "%s", place->path);
    int rc = fill(handle, &api, err);
    if (rc < 0) {
        dlclose(handle);
        return rc;
    }
    api.cuda = nccl_build_of(api.path);
    *ret = api;
    return 0;
}

/* ---- the NCCL of this process ---- */

static struct {
    pthread_mutex_t lock;
    bool loaded;
    struct nccl_api api;
} g_nccl = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Uses the first file that exists, even if it does not load, is too old or no NCCL: falling back to
 * another NCCL would hide a broken setup. If none exists, err has the reason of the first. */
static int open_first(struct nccl_api *ret, struct err *err)
{
    struct nccl_places places;
    struct err first = {0};
    int rc = find(&places, err);
    for (int i = 0; i < places.n && rc == 0; i++) {
        struct err e = {0};
        rc = nccl_api_open(&places.v[i], ret, &e);
        if (rc == 0)
            return 0;
        if (rc != -ENOENT)
            return err_set(err, -rc, "%s", e.msg);
        if (i == 0)
            first = e;
        rc = 0;
    }
    return rc < 0 ? rc : err_set(err, ENOENT, "%s", err_text(&first));
}

int nccl_api_load(const struct nccl_api **ret, struct err *err)
{
    pthread_mutex_lock(&g_nccl.lock);
    int rc = g_nccl.loaded ? 0 : open_first(&g_nccl.api, err);
    g_nccl.loaded = rc == 0;
    pthread_mutex_unlock(&g_nccl.lock);
    if (rc == 0)
        *ret = &g_nccl.api;
    return rc;
}

int nccl_api_refuse_blocking(const struct nccl_api *api, struct err *err)
{
    const char *blocks = getenv("NCCL_COMM_BLOCKING");
    if (!blocks || !blocks[0] || strcmp(blocks, "0") == 0)
        return 0;
    return err_set(err, ENOTSUP,
                   "NCCL_COMM_BLOCKING=%s makes calls of NCCL %s (%s) wait for other ranks, which "
                   "hvd cannot use: unset it, also in NCCL's configuration file",
                   blocks, api->text, api->path);
}
