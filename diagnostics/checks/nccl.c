/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl: the NCCL that training would use: does it load, is there exactly one copy, known faults of
 * its version, its network plugin, and the copy that running ranks have mapped. nccl_settings.c has
 * its variables. See check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/facts.h"

#define PATH_LEN 1024

/* The version of NCCL that is linked into torch or into an extension of Horovod, *ret_path: the
 * file; NULL: none. */
static const char *inside_torch(const struct view *v, const char **ret_path)
{
    const struct answer *a = machine_answer(v->machine, "elf");
    int n = answer_count(a, "object");
    for (int i = 0; i < n; i++) {
        const char *version = answer_str_at(a, "object", i, "nccl_inside", NULL);
        if (version) {
            *ret_path = answer_str_at(a, "object", i, "path", "?");
            return version;
        }
    }
    return NULL;
}

/* "2.27.7 for CUDA 13.0" */
static const char *with_cuda(const struct answer *a, int i, char *dst, size_t size)
{
    const char *version = libs_version(a, i), *cuda = answer_str_at(a, "lib", i, "cuda", NULL);
    snprintf(dst, size, "%s%s%s", version ? version : "of unknown version",
             cuda ? " for CUDA " : "", cuda ? cuda : "");
    return dst;
}

static void check_load(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nccl");
    char text[64];
    const char *inside, *where = NULL;
    if (!result_needs(r, a, "NCCL"))
        return;
    const char *path = answer_str(a, "path", NULL), *state = answer_str(a, "load", NULL);
    const char *error = answer_str(a, "error", NULL);
    result_expected(r, "libnccl.so.2 loads");
    if (state) {
        result_observed(r, "%s", state);
        result_fail(r, "loading %s: %s", path ? path : "libnccl.so.2", state);
    } else if (path && !answer_str_at(a, "lib", 0, "error", NULL)) {
        result_observed(r, "%s", libs_version(a, 0) ? libs_version(a, 0) : "?");
        result_pass(r, "NCCL %s (%s)", with_cuda(a, 0, text, sizeof(text)), path);
    } else if (answer_count(a, "lib") && !libs_reachable(a, 0) &&
               !answer_str_at(a, "lib", 0, "error", NULL)) {
        result_observed(r, "%s", libs_version(a, 0) ? libs_version(a, 0) : "?");
        result_pass(r, "NCCL %s in a %s: %s", with_cuda(a, 0, text, sizeof(text)),
                    answer_str_at(a, "lib", 0, "how", "folder"),
                    answer_str_at(a, "lib", 0, "path", ""));
    } else if (answer_count(a, "lib")) {
        error = answer_str_at(a, "lib", 0, "error", error);
        result_observed(r, "%s", error ? error : "?");
        result_fail(r, "%s does not load: %s", answer_str_at(a, "lib", 0, "path", "libnccl.so.2"),
                    error ? error : "?");
    } else if ((inside = inside_torch(v, &where))) {
        result_observed(r, "%s", inside);
        result_pass(r, "NCCL %s is inside %s", inside, where);
    } else if (v->setting->ranks > 1 || facts_gpus(v->machine) > 1) {
        result_observed(r, "none");
        result_fail(r, "no NCCL in this image: GPUs cannot exchange data%s%s", error ? ": " : "",
                    error ? error : "");
    } else {
        result_observed(r, "none");
        result_warn(r, "no NCCL in this image; one GPU works without");
    }
}

/* ---- copies ---- */

/* The CUDA majors that the copies were built for, as a bit set. */
static unsigned cuda_majors(const struct answer *a)
{
    unsigned set = 0;
    int n = answer_count(a, "lib");
    for (int i = 0; i < n; i++) {
        int major = libs_major(answer_str_at(a, "lib", i, "cuda", NULL));
        if (major > 0 && major < 32)
            set |= 1u << major;
    }
    return set;
}

static void check_multiple(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nccl");
    char list[RESULT_TEXT / 2];
    const char *where = NULL;
    if (!result_needs(r, a, "NCCL"))
        return;
    const char *inside = inside_torch(v, &where);
    int n = answer_count(a, "lib"), distinct = libs_distinct(a, false, false);
    unsigned majors = cuda_majors(a);
    bool differs = inside && n;
    for (int i = 0; i < n && differs; i++)
        differs = !libs_version(a, i) || version_compare(libs_version(a, i), inside) != 0;
    libs_list(a, list, sizeof(list));
    result_observed(r, "%d", distinct + differs);
    result_expected(r, "1");
    if (majors & (majors - 1))
        result_fail(r, "NCCL for different CUDA majors: %s", list);
    else if (distinct > 1)
        result_warn(r, "%d versions of NCCL: %s", distinct, list);
    else if (differs)
        result_warn(r, "NCCL %s inside %s, and %s", inside, where, list);
    else if (n > 1)
        result_info(r, "%d copies of one version of NCCL: %s", n, list);
    else
        result_pass(r, n > 0 || inside ? "one NCCL" : "no NCCL here");
}

/* ---- versions ---- */

/* Sets the result to the worst known fault of one version; false: there is none. */
static bool judge(const struct view *v, const char *version, const char *cuda, const char *where,
                  struct result *r)
{
    const struct facts facts = {.view = v, .cuda = cuda};
    char what[PATH_LEN + 64];
    snprintf(what, sizeof(what), "NCCL %s (%s)", version, where);
    struct result build = *r, own = *r;
    bool bad_build = cuda && facts_judge(&build, &facts, "nccl-build", cuda, what);
    bool bad = facts_judge(&own, &facts, "nccl", version, what);
    if (bad_build && (!bad || build.status >= own.status))
        *r = build;
    else if (bad)
        *r = own;
    return bad_build || bad;
}

static void check_known_bad(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nccl");
    const char *where = NULL;
    char list[RESULT_TEXT / 2];
    if (!result_needs(r, a, "NCCL"))
        return;
    const char *inside = inside_torch(v, &where);
    int n = answer_count(a, "lib"), judged = 0;
    struct result worst = *r;
    result_pass(&worst, "nothing");
    bool bad = false;
    for (int i = 0; i <= n; i++) {
        struct result one = *r;
        const char *version = i < n ? libs_version(a, i) : inside;
        if (!version)
            continue;
        judged++;
        if (!judge(v, version, i < n ? answer_str_at(a, "lib", i, "cuda", NULL) : NULL,
                   i < n ? answer_str_at(a, "lib", i, "path", "?") : where, &one))
            continue;
        if (!bad || one.status > worst.status)
            worst = one;
        bad = true;
    }
    if (judged == 0) {
        result_skip(r, n ? "the version of NCCL is unknown" : "no NCCL here");
        return;
    }
    *r = bad ? worst : *r;
    result_expected(r, ">= 2.28.9");
    if (!bad) {
        libs_list(a, list, sizeof(list));
        result_observed(r, "%s", n ? libs_version(a, 0) : inside);
        result_pass(r, "no known fault of NCCL %s", n ? list : inside);
    }
}

/* ---- plugin ---- */

static void check_plugin(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nccl-plugin");
    const struct facts facts = {.view = v};
    if (!result_needs(r, a, "NCCL's network plugin"))
        return;
    const char *wanted = answer_str(a, "wanted", NULL), *error = NULL, *state = NULL;
    bool efa = facts_holds((void *)&facts, "efa");
    int n = answer_count(a, "lib");
    result_expected(r, "%s", wanted ? wanted : efa ? "libnccl-net.so" : "none needed");
    if (wanted && strcmp(wanted, "none") == 0) {
        result_info(r, "NCCL_NET_PLUGIN=none: %s",
                    efa ? "EFA devices here are not used" : "no plugin");
        return;
    }
    for (int i = 0; i < n; i++) {
        const char *version = answer_str_at(a, "lib", i, "version", NULL);
        state = answer_str_at(a, "lib", i, "state", state);
        error = answer_str_at(a, "lib", i, "error", error);
        if (!version)
            continue;
        result_observed(r, "v%s", version);
        result_pass(r, "%s, interface v%s (%s)", answer_str_at(a, "lib", i, "name", "plugin"),
                    version, answer_str_at(a, "lib", i, "loaded", "?"));
        return;
    }
    bool broken = state || (error && !strstr(error, "No such file"));
    if (broken)
        result_fail(r, "NCCL's network plugin does not load: %s", state ? state : error);
    else if (wanted)
        result_fail(r, "NCCL_NET_PLUGIN=%s does not exist: %s", wanted,
                    error ? error : "no answer");
    else if (efa)
        result_warn(r, "EFA devices, but no libnccl-net.so (aws-ofi-nccl): NCCL will use sockets");
    else
        result_pass(r, "no plugin: NCCL's own InfiniBand and socket transports");
    result_observed(r, "%s", state ? state : error ? error : "none");
}

/* ---- running ranks ---- */

/* The path of the libnccl that a process has mapped, "" for none; or -errno. */
static int mapped(const struct machine *m, const char *pid, char dst[PATH_LEN])
{
    char path[64];
    auto_free char *text = NULL;
    snprintf(path, sizeof(path), "proc/%.20s/maps", pid);
    int rc = machine_read(m, path, &text, NULL);
    dst[0] = '\0';
    if (rc < 0)
        return rc;
    char *hit = strstr(text, "libnccl.so");
    if (!hit)
        return 0;
    char *start = hit;
    while (start > text && start[-1] != ' ' && start[-1] != '\n')
        start--;
    snprintf(dst, PATH_LEN, "%.*s", (int)strcspn(start, "\n"), start);
    return 0;
}

static void check_mapped(const struct view *v, struct result *r)
{
    const struct answer *ranks = machine_answer(v->machine, "ranks");
    char first[PATH_LEN] = "", path[PATH_LEN];
    const char *first_pid = NULL;
    int n = answer_count(ranks, "rank"), with = 0, refused = 0;
    if (!result_needs(r, ranks, "running ranks"))
        return;
    for (int i = 0; i < n; i++) {
        const char *pid = answer_str_at(ranks, "rank", i, "pid", "?");
        if (mapped(v->machine, pid, path) < 0) {
            refused++;
            continue;
        }
        if (!path[0])
            continue;
        with++;
        if (!first_pid) {
            first_pid = pid;
            memcpy(first, path, sizeof(first));
        } else if (strcmp(first, path) != 0) {
            result_observed(r, "%s", path);
            result_expected(r, "%s", first);
            result_fail(r, "pid %s has mapped %s, pid %s %s: two NCCLs in one job", first_pid,
                        first, pid, path);
            return;
        }
    }
    const char *loader = answer_str(machine_answer(v->machine, "nccl"), "path", NULL);
    result_observed(r, "%s", with ? first : "none");
    if (n == 0)
        result_pass(r, "no rank is running");
    else if (refused == n)
        result_skip(r, "the maps of %d ranks are not readable: run as the same user", n);
    else if (with == 0)
        result_pass(r, "%d ranks, none has mapped NCCL", n);
    else if (loader && strcmp(loader, first) != 0)
        result_info(r, "%d ranks have mapped %s; a plain program would get %s", with, first,
                    loader);
    else
        result_pass(r, "%d ranks have mapped %s", with, first);
}

#define NCCL_DOCS  "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"
#define NEWER      "pip install -U nvidia-nccl-cu12 (or -cu13) in the image: the CUDA major of torch"
#define NEWER_HOST "apt-get install libnccl2, or pip install -U nvidia-nccl-cu12 (or -cu13)"

static const struct check rows[] = {
    {.id = "nccl-load",
     .code = "HVD6001",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"nccl", "elf", "nvml"},
     .run = check_load,
     .title = "NCCL loads",
     .why =
         "Without NCCL GPUs exchange gradients through the CPU: several times slower, or the job "
         "stops at \"libnccl.so.2: cannot open shared object file\".",
     .fix = {NEWER, "an image with torch for CUDA, which brings NCCL", NEWER_HOST},
     .action = ACTION_INSTALL,
     .explain =
         "hvd-probe opens libnccl.so.2 as the loader finds it, and copies in Python packages, "
         "in a child each, and calls ncclGetVersion (no GPU is needed for that). Old torch has "
         "NCCL inside libtorch_cuda.so.",
     .refs = {NCCL_DOCS "api/comms.html#ncclgetversion"}},
    {.id = "nccl-multiple",
     .code = "HVD6002",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"nccl", "elf"},
     .run = check_multiple,
     .title = "one NCCL only",
     .why = "Which copy a process gets depends on what is loaded first: \"undefined symbol: "
            "nccl...\", "
            "\"Mismatched NCCL version detected\", or a hang between ranks of different copies.",
     .fix =
         {"keep the copy of torch's package: apt-get purge libnccl2, no NCCL in LD_LIBRARY_PATH",
          "an image with one NCCL; env: LD_LIBRARY_PATH without a second one",
          "pip uninstall the nvidia-nccl package of the other CUDA major; remove libnccl2 or its "
          "folder from LD_LIBRARY_PATH"},
     .action = ACTION_REMOVE,
     .explain =
         "Every libnccl.so.* of the loader's cache, LD_LIBRARY_PATH, Python packages, conda and "
         "CUDA folders; one file counts once. Two versions warn, builds for two CUDA majors "
         "fail.",
     .refs = {NCCL_DOCS "troubleshooting.html"}},
    {.id = "nccl-known-bad",
     .code = "HVD6003",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"nccl", "nvml", "elf"},
     .run = check_known_bad,
     .title = "version of NCCL",
     .why = "Some releases hang or corrupt data in known situations, and logs do not show it.",
     .fix = {NEWER, "an image with NCCL 2.28.9 or newer", NEWER_HOST},
     .action = ACTION_VERSION,
     .explain =
         "Each copy's version against the rules compiled in from NCCL's release notes, and the "
         "CUDA it was built for against the GPUs' compute capability. A fix that is missing "
         "warns; it fails where its conditions hold here. hvd refuses NCCL before 2.14.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/release-notes/index.html",
              "https://github.com/NVIDIA/nccl/releases"}},
    {.id = "nccl-net-plugin",
     .code = "HVD6008",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"nccl-plugin"},
     .run = check_plugin,
     .title = "NCCL's network plugin",
     .why = "NCCL ignores a plugin that does not load without an error: it falls back to sockets "
            "and is ten times slower.",
     .fix = {"an image with the cloud's plugin (AWS: aws-ofi-nccl), its folder in LD_LIBRARY_PATH",
             "the same image; mount the plugin's folder where the provider asks for it (GKE: "
             "/usr/local/nvidia/lib64)",
             "install the plugin of the network (aws-efa-installer), or unset NCCL_NET_PLUGIN"},
     .action = ACTION_INSTALL,
     .explain =
         "hvd-probe opens libnccl-net.so, or what NCCL_NET_PLUGIN names (X: libnccl-net-X.so), "
         "and looks for ncclNetPlugin_v2 and newer. None is needed without EFA and the like.",
     .refs = {NCCL_DOCS "env.html#nccl-net-plugin"}},
    {.id = "hvd-nccl-mapped",
     .code = "HVD6009",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"ranks", "nccl"},
     .run = check_mapped,
     .title = "the NCCL that ranks use",
     .why = "Ranks of one job with different NCCLs hang or end with \"Mismatched NCCL version "
            "detected\".",
     .fix =
         {"one image for all ranks, with one NCCL", "one image for all workers, with one NCCL",
          "start all ranks with the same environment; `hvd-doctor check --only nccl-multiple` says "
          "which copies there are"},
     .action = ACTION_VERSION,
     .explain =
         "Ranks that run on this machine are known by HVD_RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK "
         "or SLURM_PROCID in their environment; /proc/PID/maps says which libnccl each has.",
     .refs = {NCCL_DOCS "troubleshooting.html"}},
};

const struct check_table checks_nccl = {rows, sizeof(rows) / sizeof(*rows)};
