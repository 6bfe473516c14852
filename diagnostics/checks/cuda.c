/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda: does CUDA start, are driver, runtime and GPUs compatible, is libcuda the driver's own? See
 * check.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/checks/gpu.h"
#include "diagnostics/checks/libs.h"
#include "diagnostics/facts.h"

/* ---- cuInit ---- */

/* CUresult values of cuInit as in cuda.h, what each means and what helps. */
static const struct {
    int code;
    const char *what, *fix;
    enum check_action action;
} errors[] = {
    {34, "the library is a stub of the toolkit", "take .../stubs out of LD_LIBRARY_PATH",
     ACTION_ENVIRONMENT},
    {46, "a GPU is busy or unavailable",
     "nvidia-smi -c DEFAULT; end the program that holds the GPU", ACTION_HOST},
    {100, "it sees no GPU", "docker run --gpus all; unset CUDA_VISIBLE_DEVICES",
     ACTION_CONTAINER_OPTION},
    {101, "CUDA_VISIBLE_DEVICES names a GPU that is not here", "unset CUDA_VISIBLE_DEVICES",
     ACTION_ENVIRONMENT},
    {304, "the operating system refuses (device files, cgroup, /dev/nvidia-uvm)",
     "recreate the container with --gpus all", ACTION_RECREATE},
    {802, "the NVSwitch fabric is not ready", "systemctl restart nvidia-fabricmanager on the host",
     ACTION_HOST},
    {803, "library and kernel module belong to different driver versions",
     "restart the host, recreate the "
     "container",
     ACTION_REBOOT},
    {804, "the compatibility libcuda does not work with this GPU",
     "take .../cuda/compat out of LD_LIBRARY_PATH, or a newer driver on the host",
     ACTION_ENVIRONMENT},
    {805, "MPS does not answer",
     "restart nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY", ACTION_HOST},
    {999, "unknown error: device files or module are in a wrong state",
     "modprobe nvidia_uvm on the host; recreate the container", ACTION_RECREATE},
};

static void say_error(struct result *r, const struct answer *a, int rc)
{
    const char *name = answer_str(a, "init_name", "?"), *text = answer_str(a, "init_text", "");
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++) {
        if (errors[i].code != rc)
            continue;
        result_fail(r, "cuInit: %d %s: %s", rc, name, errors[i].what);
        for (int place = 0; place < FIX_PLACES; place++)
            result_fix(r, (enum fix_place)place, "%s", errors[i].fix);
        result_action(r, errors[i].action);
        return;
    }
    result_fail(r, "cuInit: %d %s (%s)", rc, name, text);
}

static void check_init(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "cuda");
    char text[128];
    answer_describe(a, text, sizeof(text));
    result_expected(r, "0");
    if (a->state == ANSWER_TIMEOUT || a->state == ANSWER_CRASHED) {
        result_observed(r, "%s", text);
        result_fail(r, "cuInit of %s %s", answer_str(a, "path", "libcuda.so.1"), text);
        return;
    }
    if (!result_needs(r, a, "CUDA"))
        return;
    int rc = (int)answer_int(a, "init", -1);
    bool gpu = gpu_on_pci(v->machine) > 0 || gpu_device_files(v->machine) > 0;
    result_observed(r, "%d", rc);
    if (!answer_has(a, "path") && !gpu)
        result_skip(r, "no NVIDIA GPU here");
    else if (!answer_has(a, "path") && (v->setting->profiles & PROFILE_GPU))
        result_fail(r, "%s", answer_str(a, "error", "libcuda.so.1 is not there"));
    else if (!answer_has(a, "path"))
        result_skip(r, "no CUDA driver in this container: %s",
                    answer_str(a, "error", "no libcuda.so.1"));
    else if (rc == 0)
        result_pass(r, "cuInit took %u ms, CUDA %s, %" PRId64 " GPUs", a->ms,
                    answer_str(a, "version", "?"), answer_int(a, "count", 0));
    else if (rc == 100 && !gpu)
        result_skip(r, "libcuda is installed, but no GPU is visible");
    else
        say_error(r, a, rc);
}

/* ---- versions ---- */

/* The CUDA that torch was built for, else the loader's libcudart; NULL: unknown. */
static const char *used_cuda(const struct view *v, const char **ret_whose)
{
    const struct answer *f = machine_answer(v->machine, "framework");
    const char *torch = answer_str_at(f, "torch", 0, "cuda", NULL);
    *ret_whose = torch ? "torch" : "libcudart";
    if (torch)
        return torch;
    return libs_version(machine_answer(v->machine, "cudart"), 0);
}

static void check_driver(const struct view *v, struct result *r)
{
    const struct answer *nvml = machine_answer(v->machine, "nvml");
    const struct answer *cuda = machine_answer(v->machine, "cuda");
    const char *whose, *needed = used_cuda(v, &whose);
    const struct facts facts = {.view = v, .cuda = needed};
    char module[64], what[RESULT_TEXT];
    const char *driver = answer_str(nvml, "driver", NULL);
    if (!driver && gpu_module_version(v->machine, module, sizeof(module)))
        driver = module;
    if (!driver) {
        result_skip(r, gpu_on_pci(v->machine) > 0 ? "the driver does not report its version"
                                                  : "no NVIDIA GPU here");
        return;
    }
    result_observed(r, "%s", driver);
    snprintf(what, sizeof(what), "driver %s, %s is for CUDA %s", driver, whose,
             needed ? needed : "unknown");
    if (strstr(answer_str(cuda, "path", ""), "/compat") && answer_int(cuda, "init", -1) == 0)
        result_pass(r, "driver %s with the compatibility library %s", driver,
                    answer_str(cuda, "path", ""));
    else if (!facts_judge(r, &facts, "driver", driver, what))
        result_pass(r, "driver %s%s%s%s%s", driver, needed ? " is new enough for CUDA " : "",
                    needed ? needed : "", needed ? " of " : "", needed ? whose : "");
}

static void check_runtime(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "cudart");
    const char *able = answer_str(machine_answer(v->machine, "cuda"), "version", NULL);
    char list[RESULT_TEXT / 2], newest[32] = "";
    if (!result_needs(r, a, "the CUDA runtime"))
        return;
    int n = answer_count(a, "lib");
    for (int i = 0; i < n; i++) {
        const char *version = libs_version(a, i);
        if (version && (!newest[0] || version_compare(version, newest) > 0))
            snprintf(newest, sizeof(newest), "%.31s", version);
    }
    libs_list(a, list, sizeof(list));
    result_observed(r, "%s", newest[0] ? newest : "none");
    result_expected(r, "one, %s or older", able ? able : "?");
    if (n == 0)
        result_pass(r, "no libcudart in the usual places (it may be linked in)");
    else if (able && newest[0] && libs_major(newest) > libs_major(able))
        result_fail(r, "the driver supports CUDA up to %s, the runtime is %s: %s", able, newest,
                    list);
    else if (libs_distinct(a, true, false) > 1)
        result_warn(r, "runtimes of several CUDA majors: %s", list);
    else
        result_pass(r, "CUDA runtime %s", list);
}

/* ---- which libcuda ---- */

static bool consumer(const struct view *v)
{
    const struct answer *a = machine_answer(v->machine, "nvml");
    const char *name = answer_str_at(a, "gpu", 0, "name", "");
    return strstr(name, "GeForce") || strstr(name, "TITAN");
}

/* The answer "cuda"; NULL: libcuda was not found or did not answer, and the result is set. */
static const struct answer *with_libcuda(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "cuda");
    if (!answer_has(a, "path")) {
        if (result_needs(r, a, "CUDA"))
            result_skip(r, "no libcuda.so.1 here");
        return NULL;
    }
    result_observed(r, "%s", answer_str(a, "path", ""));
    return a;
}

static void check_compat(const struct view *v, struct result *r)
{
    const struct answer *a = with_libcuda(v, r);
    if (!a)
        return;
    const char *path = answer_str(a, "path", "");
    result_expected(r, "the driver's own");
    if (!strstr(path, "/compat"))
        result_pass(r, "%s is not a compatibility library", path);
    else if (answer_int(a, "init", 0) == 804 || consumer(v))
        result_fail(
            r, "%s works with data centre GPUs only%s%s", path, consumer(v) ? "; this is " : "",
            consumer(v) ? answer_str_at(machine_answer(v->machine, "nvml"), "gpu", 0, "name", "")
                        : "");
    else
        result_info(r, "the compatibility library %s is used in place of the driver's libcuda",
                    path);
}

static void check_stubs(const struct view *v, struct result *r)
{
    const char *path_list = machine_env(v->machine, "LD_LIBRARY_PATH");
    const struct answer *a = with_libcuda(v, r);
    if (!a)
        return;
    const char *path = answer_str(a, "path", "");
    result_expected(r, "the driver's own");
    if (strstr(path, "/stubs/") || answer_int(a, "init", 0) == 34)
        result_fail(r, "%s is the toolkit's stub, for linking only", path);
    else if (path_list && strstr(path_list, "/stubs"))
        result_warn(r, "LD_LIBRARY_PATH has a folder of stubs: %.200s", path_list);
    else
        result_pass(r, "%s", path);
}

/* ---- GPUs and toolkits ---- */

/* Compute capabilities that a CUDA toolkit has code for; newer GPUs of the same driver can run
 * its PTX. Source: the release notes of each toolkit. The last row that fits applies. */
static const struct {
    const char *cuda;
    int oldest, newest;
} archs[] = {
    {"10.0", 30, 75}, {"11.0", 35, 80},  {"11.1", 35, 87},  {"11.8", 35, 90},
    {"12.0", 50, 90}, {"12.8", 50, 121}, {"13.0", 75, 121},
};

static void check_arch(const struct view *v, struct result *r)
{
    const char *whose, *cuda = used_cuda(v, &whose);
    int oldest, newest, row = -1;
    char old_text[16], new_text[16];
    facts_sm(v->machine, &oldest, &newest);
    if (!oldest) {
        if (gpu_nvml(v, r))
            result_skip(r, "the driver does not report the GPUs' compute capability");
        return;
    }
    facts_sm_text(oldest, old_text);
    facts_sm_text(newest, new_text);
    for (int i = 0; cuda && i < (int)(sizeof(archs) / sizeof(*archs)); i++) {
        if (version_compare(cuda, archs[i].cuda) >= 0)
            row = i;
    }
    result_observed(r, "%s to %s", old_text, new_text);
    if (row < 0) {
        result_skip(r, "GPUs of compute capability %s; no CUDA runtime or torch to compare with",
                    old_text);
        return;
    }
    result_expected(r, "%d.%d to %d.%d", archs[row].oldest / 10, archs[row].oldest % 10,
                    archs[row].newest / 10, archs[row].newest % 10);
    if (oldest < archs[row].oldest)
        result_fail(r, "%s for CUDA %s has no code for a GPU of compute capability %s", whose, cuda,
                    old_text);
    else if (newest > archs[row].newest)
        result_warn(
            r,
            "%s for CUDA %s is older than a GPU of compute capability %s: \"no kernel image "
            "is available\", or minutes of compiling",
            whose, cuda, new_text);
    else
        result_pass(r, "%s for CUDA %s supports compute capability %s%s%s", whose, cuda, old_text,
                    newest > oldest ? " to " : "", newest > oldest ? new_text : "");
}

/* ---- variables ---- */

static const struct {
    const char *name, *value;
    bool slow; /* a warning, else a note */
    const char *what;
} variables[] = {
    {"CUDA_LAUNCH_BLOCKING", "1", true, "every kernel waits for the one before it"},
    {"PYTORCH_NO_CUDA_MEMORY_CACHING", "1", true, "each tensor calls cudaMalloc"},
    {"CUDA_FORCE_PTX_JIT", "1", true, "all kernels are compiled at start"},
    {"CUDA_CACHE_DISABLE", "1", false, "compiled kernels are not cached"},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "1", false, "one hardware queue, as Megatron wants it"},
    {"CUDA_MODULE_LOADING", "EAGER", false, "all kernels are loaded at start"},
    {"CUDA_DEVICE_ORDER", "FASTEST_FIRST", false, "numbers of GPUs differ from nvidia-smi's"},
    {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", false, "a fault writes gigabytes"},
    {"NVIDIA_TF32_OVERRIDE", "0", false, "no TF32: matrix products are slower"},
};

static void check_env(const struct view *v, struct result *r)
{
    char list[RESULT_TEXT / 2] = "";
    bool slow = false;
    for (size_t i = 0; i < sizeof(variables) / sizeof(*variables); i++) {
        const char *value = machine_env(v->machine, variables[i].name);
        size_t at = strlen(list);
        if (!value || strcmp(value, variables[i].value) != 0)
            continue;
        slow |= variables[i].slow;
        snprintf(list + at, sizeof(list) - at, "%s%s=%s (%s)", at ? ", " : "", variables[i].name,
                 value, variables[i].what);
    }
    result_observed(r, "%s", *list ? list : "-");
    result_expected(r, "none of them");
    if (slow)
        result_warn(r, "%s", list);
    else if (*list)
        result_info(r, "%s", list);
    else
        result_pass(r, "no CUDA variable that slows a job down");
}

#define COMPAT  "https://docs.nvidia.com/deploy/cuda-compatibility/index.html"
#define DRIVER  "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__INITIALIZE.html"
#define CUDAENV "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars"

static const struct check rows[] = {
    {.id = "cuinit",
     .code = "HVD5021",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"cuda"},
     .run = check_init,
     .title = "CUDA starts",
     .why = "cuInit is the first thing that every CUDA program does: when it fails or hangs, so do "
            "all "
            "ranks.",
     .fix = {"docker run --gpus all ... with a current nvidia-container-toolkit",
             "resources: {limits: {nvidia.com/gpu: 1}}; else look at the node: dmesg, nvidia-smi",
             "nvidia-smi; dmesg | grep -iE 'nvrm|xid'; restart the host when it hangs"},
     .action = ACTION_HOST,
     .explain =
         "cuInit(0) in a process of its own, within --timeout. 802: fabric manager, 803: library "
         "and module differ, 804: compatibility library, 100: no GPU, 999: device files. A "
         "time-out fails. The first call after the driver was loaded may take seconds.",
     .refs = {DRIVER, COMPAT}},
    {.id = "cuda-driver-version",
     .code = "HVD5022",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml", "cuda", "cudart", "framework"},
     .run = check_driver,
     .title = "the driver is new enough",
     .why = "\"CUDA driver version is insufficient for CUDA runtime version\" at the first tensor.",
     .fix = {"an image for an older CUDA, or a newer driver on the host",
             "nodes with a newer driver (nodeSelector nvidia.com/cuda.driver.major), or an older "
             "image",
             "install a newer driver; pip install torch --index-url "
             "https://download.pytorch.org/whl/cu126 for an older CUDA"},
     .action = ACTION_VERSION,
     .explain =
         "The driver's version against what the CUDA of torch (else of libcudart) needs: 13.x "
         "580, 12.x 525, 11.x 450.80.02, 10.2 440.33, 10.1 418.39, 10.0 410.48. Minor versions "
         "of one major may differ.",
     .refs = {COMPAT}},
    {.id = "cudart-version",
     .code = "HVD5023",
     .group = GROUP_GPU,
     .level = 1,
     .probes = {"cudart", "cuda"},
     .run = check_runtime,
     .title = "CUDA runtimes",
     .why =
         "A runtime of a newer major than the driver's does not start; two majors in one process "
         "mix up their memory.",
     .fix = {"one CUDA in the image: the one that torch was built for",
             "one CUDA in the image: the one that torch was built for",
             "pip uninstall nvidia-cuda-runtime-cuNN of the other major; clean LD_LIBRARY_PATH"},
     .action = ACTION_VERSION,
     .explain =
         "Every libcudart.so in the loader's folders, Python packages and CUDA folders, each "
         "asked in a child. A major above cuDriverGetVersion() fails, two majors warn.",
     .refs = {COMPAT}},
    {.id = "cuda-compat-lib",
     .code = "HVD5024",
     .group = GROUP_GPU,
     .level = 1,
     .probes = {"cuda", "nvml"},
     .run = check_compat,
     .title = "CUDA's compatibility library",
     .why =
         "\"forward compatibility was attempted on non supported HW\" (804): the image's libcuda "
         "hides the driver's.",
     .fix =
         {"docker run -e LD_LIBRARY_PATH= ..., or remove cuda-compat-* from the image",
          "env: LD_LIBRARY_PATH without .../cuda/compat",
          "remove .../cuda/compat from LD_LIBRARY_PATH and /etc/ld.so.conf.d, or a newer driver"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "libcuda.so.1 from a folder compat fails on GeForce and TITAN, or when cuInit said 804. "
         "On data centre GPUs it is a note.",
     .refs = {COMPAT}},
    {.id = "cuda-stubs-loaded",
     .code = "HVD5025",
     .group = GROUP_GPU,
     .level = 1,
     .probes = {"cuda"},
     .run = check_stubs,
     .title = "libcuda is the driver's, not a stub",
     .why = "The stub library is for linking only: programs that load it end with \"CUDA driver is "
            "a stub library\".",
     .fix = {"ENV LD_LIBRARY_PATH without /usr/local/cuda/lib64/stubs",
             "env: LD_LIBRARY_PATH without /usr/local/cuda/lib64/stubs",
             "remove .../lib64/stubs from LD_LIBRARY_PATH and /etc/ld.so.conf.d"},
     .action = ACTION_ENVIRONMENT,
     .explain = "The libcuda.so.1 that the loader takes must not lie in a folder stubs.",
     .refs = {DRIVER}},
    {.id = "gpu-arch-support",
     .code = "HVD5026",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml", "cuda", "cudart", "framework"},
     .run = check_arch,
     .title = "CUDA toolkit supports the GPUs",
     .why =
         "\"no kernel image is available for execution on the device\": the build has no code for "
         "this GPU.",
     .fix =
         {"an image whose CUDA knows the GPU: 12.8 or newer for Blackwell, 12 for Volta and Pascal",
          "the same, or nodeSelector nvidia.com/gpu.product for other nodes",
          "pip install torch for another CUDA (--index-url .../whl/cu128, cu126)"},
     .action = ACTION_VERSION,
     .explain =
         "Compute capability of the GPUs against the CUDA of torch, else of libcudart: 10.x 3.0 "
         "to 7.5, 11.0 3.5 to 8.0, 11.1 to 8.7, 11.8 to 9.0, 12.0 5.0 to 9.0, 12.8 to 12.1, 13 7.5 "
         "to 12.1. torch itself may be built for fewer: torch.cuda.get_arch_list().",
     .refs = {"https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html",
              "https://developer.nvidia.com/cuda-gpus"}},
    {.id = "cuda-bad-env",
     .code = "HVD5027",
     .group = GROUP_GPU,
     .level = 1,
     .run = check_env,
     .title = "CUDA variables",
     .why = "These variables are for debugging. Left set, they make every step slower.",
     .fix = {"docker run without -e CUDA_LAUNCH_BLOCKING=1 and the like",
             "remove the variable from env:", "unset CUDA_LAUNCH_BLOCKING"},
     .action = ACTION_ENVIRONMENT,
     .explain = "CUDA_LAUNCH_BLOCKING=1, CUDA_FORCE_PTX_JIT=1 and PYTORCH_NO_CUDA_MEMORY_CACHING=1 "
                "warn; others are notes.",
     .refs = {CUDAENV}},
};

const struct check_table checks_cuda = {rows, sizeof(rows) / sizeof(*rows)};
