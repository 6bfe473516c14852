/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: reads the CUDA driver library's version and devices, and finds its copies; see probes.h.
 * cuInit may hang or take seconds: it runs last and in this process, when the copies are already
 * printed.
 */
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/prober/copies.h"
#include "diagnostics/prober/out.h"
#include "diagnostics/prober/probes.h"

#define GPUS_MAX 64

/* Values from cuda.h; tests/e2e/probe_abi.c compares them with it. */
enum {
    CU_ABI_COMPUTE_MODE = 20,
    CU_ABI_PCI_BUS = 33,
    CU_ABI_PCI_DEVICE = 34,
    CU_ABI_PCI_DOMAIN = 50,
    CU_ABI_MAJOR = 75,
    CU_ABI_MINOR = 76,
};

typedef int cu_init_f(unsigned flags);
typedef int cu_int_f(int *ret);
typedef int cu_device_get_f(int *ret, int index);
typedef int cu_name_f(char *dst, int len, int device);
typedef int cu_attribute_f(int *ret, int attribute, int device);
typedef int cu_peer_f(int *ret, int a, int b);
typedef int cu_error_f(int error, const char **ret);

#define FIND(type, name) ((type *)(intptr_t)dlsym(lib, name))

static void *lib;

static int attribute(int which, int device)
{
    int value = -1;
    cu_attribute_f *get = FIND(cu_attribute_f, "cuDeviceGetAttribute");
    return get && get(&value, which, device) == 0 ? value : -1;
}

static void put_device(int i, int device)
{
    char text[256] = "";
    cu_name_f *name = FIND(cu_name_f, "cuDeviceGetName");
    int major = attribute(CU_ABI_MAJOR, device), minor = attribute(CU_ABI_MINOR, device);
    if (name && name(text, sizeof(text), device) == 0)
        out_at("gpu", i, "name", "%.255s", text);
    if (major >= 0 && minor >= 0)
        out_at("gpu", i, "sm", "%d", major * 10 + minor);
    out_at("gpu", i, "pci", "%04x:%02x:%02x", attribute(CU_ABI_PCI_DOMAIN, device),
           attribute(CU_ABI_PCI_BUS, device), attribute(CU_ABI_PCI_DEVICE, device));
    out_at("gpu", i, "compute_mode", "%d", attribute(CU_ABI_COMPUTE_MODE, device));
}

static void devices(void)
{
    static int device[GPUS_MAX];
    cu_int_f *count = FIND(cu_int_f, "cuDeviceGetCount");
    cu_device_get_f *get = FIND(cu_device_get_f, "cuDeviceGet");
    cu_peer_f *peer = FIND(cu_peer_f, "cuDeviceCanAccessPeer");
    int n = 0, pairs = 0, ok = 0, can = 0;
    if (!count || !get || count(&n) != 0)
        return;
    out_put("count", "%d", n);
    for (int i = 0; i < n && i < GPUS_MAX; i++) {
        if (get(&device[i], i) == 0)
            put_device(i, device[i]);
    }
    for (int a = 0; peer && a < n && a < GPUS_MAX; a++) {
        for (int b = 0; b < n && b < GPUS_MAX; b++) {
            if (a == b || peer(&can, device[a], device[b]) != 0)
                continue;
            pairs++;
            ok += can != 0;
        }
    }
    if (pairs) {
        out_put("pairs", "%d", pairs);
        out_put("pairs_p2p", "%d", ok);
    }
}

static void start(void)
{
    int version = 0;
    const char *text = NULL;
    cu_init_f *init = FIND(cu_init_f, "cuInit");
    cu_int_f *driver = FIND(cu_int_f, "cuDriverGetVersion");
    cu_error_f *name = FIND(cu_error_f, "cuGetErrorName"),
               *say = FIND(cu_error_f, "cuGetErrorString");
    if (driver && driver(&version) == 0)
        out_put("version", "%d.%d", version / 1000, version / 10 % 100);
    if (!init) {
        out_put("error", "it has no cuInit");
        return;
    }
    out_put("begun", "1");
    int rc = init(0);
    out_put("init", "%d", rc);
    if (rc != 0 && name && name(rc, &text) == 0 && text)
        out_put("init_name", "%s", text);
    if (rc != 0 && say && say(rc, &text) == 0 && text)
        out_put("init_text", "%s", text);
    if (rc == 0)
        devices();
}

static void copies(const char *loaded)
{
    static struct copies found;
    static const char *const names[] = {"libcuda.so.1", NULL};
    static const char *const folders[] = {"/usr/local/cuda*/compat", "/usr/local/cuda*/lib64/stubs",
                                          "/usr/local/nvidia/lib*", NULL};
    static const struct library row = {.sonames = names, .file = "libcuda.so*", .folders = folders};
    struct ask loader;
    copies_find(&found, &row, &loader);
    for (int i = 0; i < found.n; i++) {
        out_at("lib", i, "path", "%s", found.v[i].path);
        out_at("lib", i, "how", "%s",
               loaded && strcmp(loaded, found.v[i].path) == 0 ? "loader" : found.v[i].how);
    }
}

int probe_cuda(const char *path)
{
    char real[PATH_MAX];
    struct link_map *map = NULL;
    const char *loaded = NULL;
    lib = dlopen(path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        out_put("error", "%s", dlerror());
    else if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map)
        loaded = realpath(map->l_name, real) ? real : map->l_name;
    if (loaded)
        out_put("path", "%s", loaded);
    copies(loaded);
    if (lib)
        start();
    return 0;
}
