/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu: is the driver there, do library and kernel module agree, how many GPUs does this container
 * have. gpu_use.c has how they may be used, gpu_health.c their health. See check.h.
 */
#include "diagnostics/checks/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/facts.h"
#include "diagnostics/proc.h"

/* nvmlReturn_t, as nvml.h numbers them. */
enum { NVML_LOST = 15, NVML_BLOCKED = 17, NVML_MISMATCH = 18, NVML_UNKNOWN = 999 };

static bool wants_gpus(const struct view *v)
{
    return (v->setting->profiles & PROFILE_GPU) || v->setting->gpus > 0;
}

/* libnvidia-ml.so.1 did not load: chooses the result. */
static void no_library(const struct view *v, struct result *r, const char *error)
{
    int pci = gpu_on_pci(v->machine);
    if (pci > 0 && !wants_gpus(v) && proc_in_container(v->machine))
        result_info(r, "%d NVIDIA GPU%s on the PCI bus, not handed to this container", pci,
                    pci == 1 ? "" : "s");
    else if (pci > 0)
        result_fail(r, "%d NVIDIA GPU%s on the PCI bus, but %s", pci, pci == 1 ? "" : "s", error);
    else if (wants_gpus(v) && v->setting->gpus > 0)
        result_fail(r, "the job wants %d GPUs, none is visible here: %s", v->setting->gpus, error);
    else
        result_skip(r, "no NVIDIA GPU here");
}

static void check_load(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nvml");
    char text[128];
    answer_describe(a, text, sizeof(text));
    result_expected(r, "an answer");
    if (a->state == ANSWER_TIMEOUT || a->state == ANSWER_CRASHED) {
        result_observed(r, "%s", text);
        result_fail(r, "NVML (%s) %s: the driver does not answer", answer_str(a, "path", "?"),
                    text);
        return;
    }
    if (!result_needs(r, a, "NVML"))
        return;
    int init = (int)answer_int(a, "init", -1);
    if (!answer_has(a, "path")) {
        no_library(v, r, answer_str(a, "error", "libnvidia-ml.so.1 is not there"));
        result_observed(r, "no library");
    } else if (init == NVML_MISMATCH || init == NVML_UNKNOWN || init == NVML_BLOCKED) {
        result_skip(r, "NVML: %s (see %s)", answer_str(a, "init_text", "?"),
                    init == NVML_MISMATCH ? "nvml-lib-mismatch" : "nvml-lost-cgroup");
    } else if (init != 0) {
        result_observed(r, "nvmlInit %d", init);
        result_fail(r, "nvmlInit: %s", answer_str(a, "init_text", answer_str(a, "error", "?")));
    } else {
        result_observed(r, "%s", answer_str(a, "driver", "?"));
        result_pass(r, "driver %s, %" PRId64 " GPU%s, CUDA up to %s", answer_str(a, "driver", "?"),
                    answer_int(a, "count", 0), answer_int(a, "count", 0) == 1 ? "" : "s",
                    answer_str(a, "cuda", "?"));
    }
}

/* The answer "nvml" if the probe called nvmlInit, with whatever result. NULL: it did not, and the
 * result is set. */
static const struct answer *opened(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "nvml");
    if (a->state == ANSWER_OK && answer_has(a, "init"))
        return a;
    if (gpu_on_pci(v->machine) > 0)
        result_skip(r, "no answer of NVML (see nvml-load)");
    else
        result_skip(r, "no NVIDIA GPU here");
    return NULL;
}

static void check_lost(const struct view *v, struct result *r)
{
    const struct answer *a = opened(v, r);
    struct gpu_list lost = {.n = 0};
    if (!a)
        return;
    int init = (int)answer_int(a, "init", 0), n = answer_count(a, "gpu");
    for (int i = 0; i < n; i++) {
        if (answer_int_at(a, "gpu", i, "rc", 0) == NVML_UNKNOWN)
            gpu_list_add(&lost, a, i, "is refused");
    }
    result_observed(r, "%d", init);
    result_expected(r, "0");
    if (init == NVML_UNKNOWN || init == NVML_BLOCKED || lost.n)
        result_fail(r, "NVML says \"%s\"%s%s%s",
                    init ? answer_str(a, "init_text", "Unknown Error") : "Unknown Error",
                    lost.n ? " for " : "", lost.text,
                    proc_in_container(v->machine)
                        ? ": the container has lost the device files that it was given at start"
                        : "");
    else
        result_pass(r, "the device files are open to this process");
}

static void check_mismatch(const struct view *v, struct result *r)
{
    const struct answer *a = opened(v, r);
    char module[64] = "";
    if (!a)
        return;
    bool known = gpu_module_version(v->machine, module, sizeof(module));
    const char *library = answer_str(a, "nvml", NULL), *path = answer_str(a, "path", "");
    const char *so = strstr(path, ".so.");
    /* NVML 12.535.104.05 is the driver's 535.104.05; the file's name ends in it, too. */
    if (so && strchr(so + 4, '.'))
        library = so + 4;
    else if (library && strchr(library, '.'))
        library = strchr(library, '.') + 1;
    result_observed(r, "%s", library ? library : "?");
    result_expected(r, "%s", known ? module : "the kernel module's");
    if (answer_int(a, "init", 0) == NVML_MISMATCH)
        result_fail(r,
                    "the driver's library is %s, the kernel module %s: the driver was updated "
                    "while programs used it",
                    library ? library : "of unknown version",
                    known ? module : "of another version");
    else if (known && library && strcmp(library, module) != 0)
        result_warn(r, "the driver's library is %s, the kernel module %s", library, module);
    else if (known)
        result_pass(r, "library and kernel module are both %s", module);
    else
        result_pass(r, "NVML and the kernel module understand each other");
}

/* ---- how many ---- */

static int wanted_gpus(const struct setting *s)
{
    return s->gpus >= 0 ? s->gpus : (s->profiles & PROFILE_GPU) ? s->local_ranks : 0;
}

static void check_count(const struct view *v, struct result *r)
{
    const struct answer *a = opened(v, r);
    struct gpu_list lost = {.n = 0};
    if (!a)
        return;
    int n = (int)answer_int(a, "count", 0), files = gpu_device_files(v->machine);
    int pci = gpu_on_pci(v->machine), want = wanted_gpus(v->setting);
    for (int i = 0; i < answer_count(a, "gpu"); i++) {
        if (answer_int_at(a, "gpu", i, "rc", 0) == NVML_LOST)
            gpu_list_add(&lost, a, i, "is lost");
    }
    result_observed(r, "%d", n);
    result_expected(r, ">= %d", want);
    if (lost.n) {
        result_fail(r, "%s: it has fallen off the bus", lost.text);
        result_action(r, ACTION_REBOOT);
    } else if (answer_int(a, "init", 0) != 0) {
        result_skip(r, "NVML: %s (see nvml-load)", answer_str(a, "init_text", "?"));
    } else if (n < want) {
        result_fail(r, "%d GPU%s here, the job wants %d on this machine", n, n == 1 ? "" : "s",
                    want);
    } else if (pci > n && !proc_in_container(v->machine)) {
        result_warn(r, "%d GPUs on the PCI bus, NVML has %d: one is not started by the driver", pci,
                    n);
        result_action(r, ACTION_HOST);
    } else if (files > 0 && files < n) {
        result_warn(r, "NVML has %d GPUs, but there are %d device files /dev/nvidia*", n, files);
    } else {
        result_pass(r, "%d GPU%s, %d device file%s", n, n == 1 ? "" : "s", files,
                    files == 1 ? "" : "s");
    }
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* What is wrong with the list, NULL: nothing. ret_n: the valid entries before that. CUDA ignores
 * everything from the first invalid entry on. */
static const char *visible(const struct answer *a, int gpus, const char *list, int *ret_n)
{
    char word[128];
    unsigned long long seen = 0;
    *ret_n = 0;
    for (; *list; list += *list == ',') {
        size_t n = strcspn(list, ",");
        snprintf(word, sizeof(word), "%.*s", (int)n, list);
        list += n;
        char *s = word + strspn(word, " "), *end;
        long i = strtol(s, &end, 10);
        if (strncmp(s, "GPU-", 4) == 0) {
            for (i = 0; i < gpus; i++) {
                if (strncmp(answer_str_at(a, "gpu", (int)i, "uuid", ""), s, strlen(s)) == 0)
                    break;
            }
            if (i == gpus)
                return "names a GPU that is not here";
        } else if (strncmp(s, "MIG-", 4) == 0) {
            (*ret_n)++;
            continue;
        } else if (end == s || (*end && *end != ' ')) {
            return "is not a list of numbers or UUIDs";
        }
        if (i < 0 || i >= gpus)
            return "has a number beyond the GPUs here";
        if (i < 64 && (seen & (1ull << i)))
            return "names a GPU twice: CUDA then sees none";
        seen |= i < 64 ? 1ull << i : 0;
        (*ret_n)++;
    }
    return NULL;
}

static void check_visible(const struct view *v, struct result *r)
{
    const struct machine *m = v->machine;
    const char *cuda = machine_env(m, "CUDA_VISIBLE_DEVICES");
    const char *nvidia = machine_env(m, "NVIDIA_VISIBLE_DEVICES");
    int n = 0;
    result_observed(r, "%s", cuda ? cuda : "not set");
    /* CDI sets "void" although it gives the container GPUs. */
    bool none = nvidia && (strcmp(nvidia, "none") == 0 || strcmp(nvidia, "void") == 0);
    if (none && wants_gpus(v) && answer_int(machine_answer(m, "nvml"), "count", 0) == 0) {
        result_fail(r, "NVIDIA_VISIBLE_DEVICES=%s: the container was started without GPUs", nvidia);
        return;
    }
    if (!cuda) {
        result_pass(r, "CUDA_VISIBLE_DEVICES is not set: all GPUs");
        return;
    }
    if (!*cuda || strcmp(cuda, "-1") == 0 || strcmp(cuda, "NoDevFiles") == 0) {
        if (wants_gpus(v))
            result_fail(r, "CUDA_VISIBLE_DEVICES=%s hides all GPUs", cuda);
        else
            result_info(r, "CUDA_VISIBLE_DEVICES=%s hides all GPUs", cuda);
        return;
    }
    const struct answer *a = gpu_nvml(v, r);
    if (!a)
        return;
    const char *wrong = visible(a, (int)answer_int(a, "count", 0), cuda, &n);
    result_expected(r, "%d or more of %" PRId64, wanted_gpus(v->setting),
                    answer_int(a, "count", 0));
    if (wrong)
        result_fail(r, "CUDA_VISIBLE_DEVICES=%s %s (%" PRId64 " GPUs)", cuda, wrong,
                    answer_int(a, "count", 0));
    else if (n < wanted_gpus(v->setting) && !machine_env(m, "LOCAL_RANK") &&
             !machine_env(m, "HVD_LOCAL_RANK"))
        result_warn(r, "CUDA_VISIBLE_DEVICES=%s leaves %d GPU%s for %d ranks", cuda, n,
                    n == 1 ? "" : "s", wanted_gpus(v->setting));
    else
        result_pass(r, "CUDA_VISIBLE_DEVICES=%s: %d of %" PRId64, cuda, n,
                    answer_int(a, "count", 0));
}

#define TOOLKIT "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"

static const struct check rows[] = {
    {.id = "nvml-load",
     .code = "HVD5001",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_load,
     .title = "NVIDIA's driver answers",
     .why = "Without the driver's libraries no program in this container can use a GPU.",
     .fix =
         {"docker run --gpus all ... (the host needs nvidia-container-toolkit)",
          "resources: {limits: {nvidia.com/gpu: 1}}; the node needs the device plugin",
          "install the driver (apt-get install nvidia-driver) and restart; `modprobe nvidia` says "
          "what is wrong"},
     .action = ACTION_HOST,
     .explain =
         "nvmlInit of libnvidia-ml.so.1 in a process of its own. No library is a failure where "
         "a display device of vendor 10de is on the PCI bus; a container of a CPU job only "
         "notes it. A time-out means a driver that hangs: look at dmesg for Xid.",
     .refs = {TOOLKIT "install-guide.html",
              "https://docs.nvidia.com/deploy/nvml-api/group__nvmlInitializationAndCleanup.html"}},
    {.id = "nvml-lost-cgroup",
     .code = "HVD5002",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_lost,
     .title = "the container keeps access to its GPUs",
     .why = "\"Failed to initialize NVML: Unknown Error\": systemd reloaded its units and took the "
            "GPUs "
            "away from a running container.",
     .fix = {"docker restart does not help: remove and create the container again; with "
             "--device /dev/nvidia0 --device /dev/nvidiactl --device /dev/nvidia-uvm it keeps them",
             "kubectl delete pod POD: a new one gets the GPUs again",
             "nvidia-ctk system create-dev-char-symlinks --create-all, or "
             "native.cgroupdriver=cgroupfs "
             "in /etc/docker/daemon.json"},
     .action = ACTION_RECREATE,
     .explain =
         "NVML answers 999 (unknown) or 17 (blocked by the operating system) although it was "
         "loaded. Running programs keep their GPUs until they end.",
     .refs = {TOOLKIT "troubleshooting.html",
              "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"}},
    {.id = "nvml-lib-mismatch",
     .code = "HVD5003",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_mismatch,
     .title = "driver library and module agree",
     .why =
         "\"Driver/library version mismatch\": an update put new libraries beside the old kernel "
         "module; new programs do not start.",
     .fix =
         {"restart the host (or reload the module), then create the container again",
          "kubectl drain NODE, restart it",
          "reboot; or end all GPU programs, then rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia "
          "&& modprobe nvidia"},
     .action = ACTION_REBOOT,
     .explain =
         "The version of libnvidia-ml.so.1 against /proc/driver/nvidia/version. NVML's error 18 "
         "fails, different numbers that still work together warn.",
     .refs = {"https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html"}},
    {.id = "gpu-count",
     .code = "HVD5004",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_count,
     .title = "number of GPUs",
     .why =
         "Ranks without a GPU of their own fail with \"invalid device ordinal\", or share one and "
         "NCCL refuses (\"Duplicate GPU detected\").",
     .fix = {"docker run --gpus all ..., or hvdrun with fewer ranks on this machine",
             "resources: {limits: {nvidia.com/gpu: N}} with N ranks a pod",
             "hvdrun -np with fewer ranks on this machine; dmesg | grep -i xid for a lost GPU"},
     .action = ACTION_JOB,
     .explain = "NVML's count against what the job wants here (--gpus, or local ranks with profile "
                "gpu), against /dev/nvidia0 ..., and, outside containers, against the PCI bus.",
     .refs = {"https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"}},
    {.id = "cuda-visible-devices",
     .code = "HVD5005",
     .group = GROUP_GPU,
     .level = 1,
     .probes = {"nvml"},
     .run = check_visible,
     .title = "CUDA_VISIBLE_DEVICES",
     .why = "CUDA ignores everything behind the first entry that it does not know: fewer GPUs than "
            "meant, or none.",
     .fix = {"docker run without -e CUDA_VISIBLE_DEVICES; choose with --gpus '\"device=0,1\"'",
             "remove CUDA_VISIBLE_DEVICES from env: the device plugin chooses",
             "unset CUDA_VISIBLE_DEVICES, or list numbers below the count of GPUs, each once"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "Numbers must be below NVML's count, UUIDs must be known, none twice. One entry per "
         "rank is fine when the launcher sets LOCAL_RANK.",
     .refs = {"https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars"}},
};

const struct check_table checks_gpu = {rows, sizeof(rows) / sizeof(*rows)};
