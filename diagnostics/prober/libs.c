/* SPDX-License-Identifier: Apache-2.0
 *
 * libs: see libs.h. The functions are declared here as the libraries' headers do
 * (tests/e2e/probe_abi.c compares where the headers are installed); none of the libraries is
 * initialized.
 */
#include "diagnostics/prober/libs.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/prober/elf.h"
#include "diagnostics/prober/out.h"

/* ISO C cannot convert an object pointer to a function pointer; by way of an integer it compiles
 * without a warning. */
#define FIND(handle, type, name) ((type *)(intptr_t)dlsym(handle, name))

static void no_symbol(const char *name)
{
    out_put("error", "it has no %s", name);
}

/* ---- NCCL ---- */

typedef int nccl_get_version_f(int *version);

static void ask_nccl(void *handle)
{
    nccl_get_version_f *get = FIND(handle, nccl_get_version_f, "ncclGetVersion");
    int code = 0;
    if (!get) { /* before NCCL 2.3.4 the version is only in the file's text */
        no_symbol("ncclGetVersion");
        return;
    }
    int rc = get(&code);
    if (rc != 0)
        out_put("error", "ncclGetVersion returned %d", rc);
    else if (code >= 10000)
        out_put("version", "%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
    else
        out_put("version", "%d.%d.%d", code / 1000, code / 100 % 10, code % 100);
    out_put("code", "%d", code);
    if (!FIND(handle, void, "ncclCommInitRankConfig"))
        out_put("config", "0");
}

/* Copies digits and dots from s on, at most left bytes, to dst. */
static size_t take_version(const char *s, size_t left, char *dst, size_t size)
{
    size_t n = 0;
    while (n < left && n + 1 < size && ((s[n] >= '0' && s[n] <= '9') || s[n] == '.')) {
        dst[n] = s[n];
        n++;
    }
    dst[n] = '\0';
    return n;
}

static bool has_prefix(const char *s, size_t left, const char *prefix)
{
    size_t n = strlen(prefix);
    return left >= n && memcmp(s, prefix, n) == 0;
}

bool libs_nccl_text(const char *path, char version[32], char cuda[16])
{
    static const char text[] = "NCCL version 2.";
    struct elf e;
    const char *at = NULL;
    size_t left = 0;
    if (elf_map(&e, path) < 0)
        return false;
    bool found = elf_rodata_has(&e, text, &at, &left);
    if (found) {
        at += sizeof(text) - 3; /* the 2 */
        left -= sizeof(text) - 3;
        size_t n = take_version(at, left, version, 32);
        at += n;
        left -= n;
        cuda[0] = '\0';
        if (has_prefix(at, left, "+cuda"))
            take_version(at + 5, left - 5, cuda, 16);
        else if (has_prefix(at, left, " compiled with CUDA "))
            take_version(at + 20, left - 20, cuda, 16);
    }
    elf_unmap(&e);
    return found;
}

static void look_nccl(const char *path, const char *list, int i)
{
    char version[32], cuda[16];
    if (!libs_nccl_text(path, version, cuda))
        return;
    out_at(list, i, "text", "%s", version);
    if (cuda[0])
        out_at(list, i, "cuda", "%s", cuda);
}

/* ---- CUDA runtime ---- */

typedef int cuda_get_version_f(int *version);

static void ask_cudart(void *handle)
{
    cuda_get_version_f *runtime = FIND(handle, cuda_get_version_f, "cudaRuntimeGetVersion");
    int code = 0;
    if (!runtime)
        no_symbol("cudaRuntimeGetVersion");
    else if (runtime(&code) == 0)
        out_put("version", "%d.%d", code / 1000, code / 10 % 100);
}

/* ---- MPI ---- */

#define MPI_VERSION_TEXT 8192 /* above MPI_MAX_LIBRARY_VERSION_STRING of all MPIs */

typedef int mpi_get_library_version_f(char *text, int *len);

static const char *mpi_vendor(const char *text)
{
    return strstr(text, "Open MPI")     ? "openmpi"
           : strstr(text, "MVAPICH")    ? "mvapich"
           : strstr(text, "Intel(R)")   ? "intel"
           : strstr(text, "CRAY MPICH") ? "cray"
           : strstr(text, "MPICH")      ? "mpich"
                                        : "other";
}

/* "Open MPI v4.1.4, package: ...", "MPICH Version:\t4.0.2 ...", "Intel(R) MPI Library 2021.7 ..."
 */
static void ask_mpi(void *handle)
{
    static char text[MPI_VERSION_TEXT + 1];
    int len = 0;
    mpi_get_library_version_f *get =
        FIND(handle, mpi_get_library_version_f, "MPI_Get_library_version");
    if (!get) {
        no_symbol("MPI_Get_library_version");
        return;
    }
    if (get(text, &len) != 0)
        return;
    const char *digit = strpbrk(text, "0123456789");
    if (digit)
        out_put("version", "%.*s", (int)strcspn(digit, ", \t\n"), digit);
    out_put("vendor", "%s", mpi_vendor(text));
    text[strcspn(text, "\n")] = '\0';
    out_put("text", "%.200s", text);
}

static void look_mpi(const char *path, const char *list, int i)
{
    struct elf e;
    struct ld ld;
    char needs[PATH_MAX];
    if (elf_map(&e, path) < 0)
        return;
    ld_init(&ld, NULL);
    for (int k = 0; k < e.nneeded; k++) {
        if (strncmp(e.needed[k], "libhwloc.so", 11) == 0) {
            out_at(list, i, "hwloc", "%s", e.needed[k]);
            if (ld_resolve(&ld, &e, path, e.needed[k], needs, sizeof(needs)) == 0)
                out_at(list, i, "hwloc_path", "%s", needs);
        }
    }
    ld_fini(&ld);
    elf_unmap(&e);
}

/* ---- PMIx, hwloc, UCX, libfabric, libnuma ---- */

typedef const char *text_f(void);
typedef unsigned number_f(void);
typedef uint32_t fi_version_f(void);
typedef void ucp_get_version_f(unsigned *major, unsigned *minor, unsigned *release);
typedef int numa_f(void);

/* "OpenPMIx 4.2.2 (PMIx Standard: ...)" */
static void ask_pmix(void *handle)
{
    char version[32];
    text_f *get = FIND(handle, text_f, "PMIx_Get_version");
    const char *text = get ? get() : NULL;
    const char *digit = text ? strpbrk(text, "0123456789") : NULL;
    if (!get)
        no_symbol("PMIx_Get_version");
    if (digit && take_version(digit, strlen(digit), version, sizeof(version)))
        out_put("version", "%s", version);
    if (text)
        out_put("text", "%.200s", text);
}

static void ask_hwloc(void *handle)
{
    number_f *get = FIND(handle, number_f, "hwloc_get_api_version");
    if (!get) {
        no_symbol("hwloc_get_api_version");
        return;
    }
    unsigned v = get();
    out_put("version", "%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
}

static void ask_ucx(void *handle)
{
    unsigned major = 0, minor = 0, release = 0;
    ucp_get_version_f *get = FIND(handle, ucp_get_version_f, "ucp_get_version");
    if (!get) {
        no_symbol("ucp_get_version");
        return;
    }
    get(&major, &minor, &release);
    out_put("version", "%u.%u.%u", major, minor, release);
}

static void ask_fabric(void *handle)
{
    fi_version_f *get = FIND(handle, fi_version_f, "fi_version");
    if (get)
        out_put("version", "%u.%u", get() >> 16, get() & 0xffff);
    else
        no_symbol("fi_version");
}

static void ask_numa(void *handle)
{
    numa_f *available = FIND(handle, numa_f, "numa_available");
    numa_f *nodes = FIND(handle, numa_f, "numa_max_node");
    int rc = available ? available() : -1;
    out_put("available", "%d", rc >= 0);
    if (rc >= 0 && nodes)
        out_put("max_node", "%d", nodes());
}

/* ---- libibverbs ---- */

struct ibv_device;
typedef struct ibv_device **ibv_get_device_list_f(int *n);
typedef const char *ibv_get_device_name_f(struct ibv_device *device);

static void ask_ibverbs(void *handle)
{
    ibv_get_device_list_f *list = FIND(handle, ibv_get_device_list_f, "ibv_get_device_list");
    ibv_get_device_name_f *name = FIND(handle, ibv_get_device_name_f, "ibv_get_device_name");
    int n = 0;
    if (!list || !name) {
        no_symbol("ibv_get_device_list");
        return;
    }
    struct ibv_device **devices = list(&n);
    out_put("devices", "%d", devices ? n : 0);
    for (int i = 0; devices && i < n; i++)
        out_at("device", i, "name", "%s", name(devices[i]));
}

/* Prints the version in the file's name: 1.17.0 of libfabric.so.1.17.0. libibverbs has no function
 * for its version. */
static void look_name(const char *path, const char *list, int i)
{
    const char *so = strstr(path, ".so.");
    if (so)
        out_at(list, i, "file_version", "%s", so + 4);
}

/* ---- the table ---- */

#define LIST(...)                                                                                  \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

static const struct {
    const char *name;
    struct library lib;
} rows[] = {
    {"nccl",
     {.sonames = LIST("libnccl.so.2"),
      .file = "libnccl.so*",
      .packages = LIST("nvidia/nccl/lib", "torch/lib", "nvidia/cu13/lib"),
      .folders = LIST("/usr/local/cuda*/lib64", "/usr/local/nccl*/lib", "/opt/nccl*/lib",
                      "/opt/nccl*/build/lib", "/usr/local/lib", "/opt/hpcx/nccl/lib"),
      .ask = ask_nccl,
      .look = look_nccl}},
    {"cudart",
     {.sonames = LIST("libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
                      "libcudart.so.10.2", "libcudart.so.10.1", "libcudart.so.10.0"),
      .file = "libcudart*.so*",
      .packages = LIST("nvidia/cu13/lib", "nvidia/cuda_runtime/lib", "torch/lib"),
      .folders = LIST("/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"),
      .ask = ask_cudart}},
    {"mpi",
     {.sonames = LIST("libmpi.so.40", "libmpi.so.80", "libmpi.so.20", "libmpi.so.12",
                      "libmpich.so.12", "libmpi.so"),
      .file = "libmpi.so*",
      .folders = LIST("/usr/local/mpi/lib", "/usr/local/lib", "/usr/local/openmpi*/lib",
                      "/opt/hpcx/ompi/lib", "/opt/openmpi*/lib", "/opt/amazon/openmpi*/lib*",
                      "/usr/lib64/openmpi/lib", "/usr/lib64/mpich/lib",
                      "/usr/lib/*-linux-gnu/openmpi/lib"),
      .ask = ask_mpi,
      .look = look_mpi}},
    {"pmix",
     {.sonames = LIST("libpmix.so.2"),
      .file = "libpmix.so*",
      .folders = LIST("/usr/local/lib", "/opt/pmix*/lib", "/opt/hpcx/ompi/lib",
                      "/usr/local/mpi/lib", "/usr/lib/*-linux-gnu/pmix*/lib"),
      .ask = ask_pmix}},
    {"hwloc",
     {.sonames = LIST("libhwloc.so.15", "libhwloc.so.5", "libhwloc.so.25", "libhwloc.so.22"),
      .file = "libhwloc.so*",
      .folders =
          LIST("/usr/local/lib", "/opt/hwloc*/lib", "/usr/local/mpi/lib", "/opt/hpcx/ompi/lib"),
      .ask = ask_hwloc}},
    {"ucx",
     {.sonames = LIST("libucp.so.0"),
      .file = "libucp.so*",
      .packages = LIST("libucx/lib"),
      .folders =
          LIST("/usr/local/ucx*/lib", "/opt/hpcx/ucx/lib", "/usr/local/lib", "/opt/ucx*/lib"),
      .ask = ask_ucx}},
    {"libfabric",
     {.sonames = LIST("libfabric.so.1"),
      .file = "libfabric.so*",
      .folders = LIST("/opt/amazon/efa/lib*", "/usr/local/lib", "/opt/libfabric*/lib"),
      .ask = ask_fabric,
      .look = look_name}},
    {"ibverbs",
     {.sonames = LIST("libibverbs.so.1"),
      .file = "libibverbs.so*",
      .ask = ask_ibverbs,
      .look = look_name}},
    {"numa", {.sonames = LIST("libnuma.so.1"), .file = "libnuma.so*", .ask = ask_numa}},
};

const struct library *libs_find(const char *name)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i].lib;
    }
    return NULL;
}
