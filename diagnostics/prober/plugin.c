/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin: the network plugin that NCCL would load, see probes.h. NCCL_NET_PLUGIN is a name ("aws":
 * libnccl-net-aws.so), a file, or "none"; without it NCCL tries libnccl-net.so.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/prober/ask.h"
#include "diagnostics/prober/elf.h"
#include "diagnostics/prober/out.h"
#include "diagnostics/prober/probes.h"

#define LOAD_MS 4000

/* Prints the newest plugin interface that the library has, and its name: the first member of the
 * structure. */
static void ask_plugin(void *handle)
{
    char symbol[32];
    for (int v = 20; v >= 2; v--) {
        snprintf(symbol, sizeof(symbol), "ncclNetPlugin_v%d", v);
        const char *const *name = dlsym(handle, symbol);
        if (!name)
            continue;
        out_put("version", "%d", v);
        if (*name)
            out_put("name", "%.64s", *name);
        return;
    }
    out_put("error", "it has no ncclNetPlugin_v2 to _v20");
}

static void report(const char *name, int i)
{
    struct ask a;
    ask_library(&a, name, ask_plugin, LOAD_MS);
    out_at("lib", i, "name", "%s", name);
    ask_print(&a, "lib", i);
}

int probe_plugin(const char *path)
{
    char file[512];
    int n = 0;
    const char *wanted = path ? path : getenv("NCCL_NET_PLUGIN");
    if (wanted)
        out_put("wanted", "%.200s", wanted);
    if (wanted && strcmp(wanted, "none") == 0)
        return 0;
    if (wanted && *wanted) {
        report(wanted, n++);
        if (!strchr(wanted, '/') && !strstr(wanted, ".so")) {
            snprintf(file, sizeof(file), "libnccl-net-%.200s.so", wanted);
            report(file, n++);
        }
    } else {
        report("libnccl-net.so", n++);
    }
    return 0;
}
