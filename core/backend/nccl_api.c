/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_api: see nccl_api.h.
 */
#include "core/backend/nccl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/backend/doctor.h"
#include "core/backend/nccl_build.h"
#include "core/base/library.h"

#define LOAD DOCTOR(CHECK_NCCL_LOAD)

/* A function, and the field that gets its address. */
struct row {
    const char *name;
    size_t offset;
};

#define ROW(name, result, arguments) {#name, offsetof(struct nccl_api, name)},

static const struct row functions[] = {NCCL_ABI_FUNCTIONS(ROW)};

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

/* ISO C has no way from an object pointer to a function: the bytes are those dlsym() returns. */
static bool find(void *handle, const struct row *row, struct nccl_api *api)
{
    void *address = dlsym(handle, row->name);
    memcpy((char *)api + row->offset, &address, sizeof(address));
    return address;
}

static int find_all(void *handle, struct nccl_api *api, struct err *err)
{
    for (size_t i = 0; i < COUNT(functions); i++)
        if (!find(handle, &functions[i], api))
            return err_set(err, ELIBBAD, "%s has no %s: it is no NCCL of 2.14 or newer " LOAD,
                           api->path, functions[i].name);
    return 0;
}

static int ask_version(struct nccl_api *api, struct err *err)
{
    int code = 0, rc = api->ncclGetVersion(&code);
    api->version = rc == NCCL_ABI_SUCCESS ? nccl_version_decode(code) : 0;
    if (api->version == 0)
        return err_set(err, ELIBBAD, "%s: ncclGetVersion answers %d, version %d " LOAD, api->path,
                       rc, code);
    nccl_version_text(api->version, api->text);
    return 0;
}

static int too_old(const struct nccl_api *api, struct err *err)
{
    return err_set(err, ENOTSUP,
                   "NCCL %s (%s, %s) is too old: hvd needs NCCL 2.14 or newer, which "
                   "HVD_NCCL_LIB=file can name " DOCTOR(CHECK_NCCL_KNOWN_BAD),
                   api->text, api->path, nccl_origin_name(api->origin));
}

/* Checks the version first: "too old" is a better reason than a missing function. */
static int fill(void *handle, struct nccl_api *api, struct err *err)
{
    static const struct row version = {"ncclGetVersion", offsetof(struct nccl_api, ncclGetVersion)};
    struct err lacks = {0};
    if (find(handle, &version, api)) {
        int rc = ask_version(api, err);
        if (rc < 0)
            return rc;
        if (api->version < NCCL_OLDEST)
            return too_old(api, err);
    }
    if (find_all(handle, api, &lacks) < 0)
        return err_set(err, ELIBBAD, "%s", lacks.msg);
    return 0;
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
    api.cuda = nccl_build_of_file(api.path);
    *ret = api;
    return 0;
}

/* ---- the NCCL of this process ---- */

static struct {
    pthread_mutex_t lock;
    struct nccl_api api;
    _Atomic(const struct nccl_api *) ready; /* &api once it is filled */
} g_nccl = {.lock = PTHREAD_MUTEX_INITIALIZER};

const struct nccl_api *nccl_api_loaded(void)
{
    return atomic_load_explicit(&g_nccl.ready, memory_order_acquire);
}

/* Uses the first file that exists, even if it does not load, is too old or no NCCL: falling back to
 * another NCCL would hide a broken setup. If none exists, err has the reason of the first. */
static int open_first(struct nccl_api *ret, struct err *err)
{
    struct nccl_place places[NCCL_PLACES];
    struct err first = {0};
    int n = nccl_find(places, err);
    if (n < 0)
        return n;
    for (int i = 0; i < n; i++) {
        struct err e = {0};
        int rc = nccl_api_open(&places[i], ret, &e);
        if (rc == 0)
            return 0;
        if (rc != -ENOENT)
            return err_set(err, -rc, "%s", e.msg);
        if (i == 0)
            first = e;
    }
    return err_set(err, ENOENT, "%s", err_text(&first));
}

int nccl_api_load(const struct nccl_api **ret, struct err *err)
{
    int rc = 0;
    pthread_mutex_lock(&g_nccl.lock);
    if (!nccl_api_loaded()) {
        rc = open_first(&g_nccl.api, err);
        if (rc == 0)
            atomic_store_explicit(&g_nccl.ready, &g_nccl.api, memory_order_release);
    }
    pthread_mutex_unlock(&g_nccl.lock);
    if (rc == 0)
        *ret = nccl_api_loaded();
    return rc;
}

const char *nccl_api_name(const struct nccl_api *api, char *dst, size_t size)
{
    snprintf(dst, size, "NCCL %s (%s, %s)", api->text, api->path, nccl_origin_name(api->origin));
    return dst;
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
