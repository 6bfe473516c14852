/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_use: how the GPUs may be used: modes, access between them, other processes on them. See
 * check.h.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/checks/gpu.h"
#include "diagnostics/facts.h"

#define MODE_PROHIBITED 2
#define MODE_EXCLUSIVE  3
#define FABRIC_STARTED  2 /* registration with the fabric is in progress */
#define FABRIC_DONE     3
#define FOREIGN_MIN     (2ull << 30) /* bytes; a driver keeps some hundred MiB; own threshold */

static void check_compute_mode(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0}, alone = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t mode = answer_int_at(a, "gpu", i, "compute_mode", 0);
        if (mode == MODE_PROHIBITED)
            gpu_list_add(&bad, a, i, "is in prohibited compute mode");
        else if (mode == MODE_EXCLUSIVE)
            gpu_list_add(&alone, a, i, "is in exclusive compute mode (one process)");
    }
    result_observed(r, "%s", bad.n ? "prohibited" : alone.n ? "exclusive" : "default");
    result_expected(r, "default");
    if (bad.n)
        result_fail(r, "%s", bad.text);
    else if (alone.n && v->setting->local_ranks > n)
        result_fail(r, "%s, and %d ranks share %d", alone.text, v->setting->local_ranks, n);
    else if (alone.n)
        result_info(r, "%s: one rank a GPU works", alone.text);
    else
        result_pass(r, "default on %d GPU%s", n, n == 1 ? "" : "s");
}

static void check_mig(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list waits = {.n = 0}, on = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t now = answer_int_at(a, "gpu", i, "mig", 0);
        if (now != answer_int_at(a, "gpu", i, "mig_pending", now))
            gpu_list_add(&waits, a, i, "changes its MIG mode at the next reset");
        else if (now)
            gpu_list_add(&on, a, i, "is split by MIG");
    }
    result_observed(r, "%d", on.n);
    result_expected(r, "0");
    if (waits.n)
        result_warn(r, "%s", waits.text);
    else if (on.n && v->setting->local_ranks > 1)
        result_warn(r, "%s: NCCL does not work between MIG instances", on.text);
    else if (on.n)
        result_info(r, "%s", on.text);
    else
        result_pass(r, "no GPU is split");
}

static void check_persistence(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list off = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        if (answer_int_at(a, "gpu", i, "persistence", 1) == 0)
            gpu_list_add(&off, a, i, "has it off");
    }
    result_observed(r, "%d off", off.n);
    result_expected(r, "0 off");
    if (off.n)
        result_warn(r,
                    "persistence mode: %s; the first program after a pause waits seconds for the "
                    "driver to load",
                    off.text);
    else
        result_pass(r, "persistence mode is on");
}

/* ---- between GPUs ---- */

static void check_p2p(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    if (!a)
        return;
    int64_t pairs = answer_int(a, "pairs", 0), ok = answer_int(a, "pairs_p2p", 0);
    result_observed(r, "%" PRId64, ok);
    result_expected(r, "%" PRId64, pairs);
    if (pairs == 0)
        result_pass(r, "one GPU, or NVML does not report access between GPUs");
    else if (ok < pairs)
        result_warn(
            r, "%" PRId64 " of %" PRId64 " pairs of GPUs reach each other's memory; not GPU %s", ok,
            pairs, answer_str(a, "pair_without", "?"));
    else
        result_pass(r, "all %" PRId64 " pairs of GPUs reach each other, %" PRId64 " by NVLink",
                    pairs, answer_int(a, "pairs_nvlink", 0));
}

static void check_fabric(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0, done = 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t state = answer_int_at(a, "gpu", i, "fabric", 0);
        int64_t status = answer_int_at(a, "gpu", i, "fabric_status", 0);
        if (state == FABRIC_STARTED)
            gpu_list_add(&bad, a, i, "is still being registered");
        else if (state == FABRIC_DONE && status != 0)
            gpu_list_add(&bad, a, i, "was refused (status %" PRId64 ")", status);
        done += state == FABRIC_DONE && status == 0;
    }
    result_observed(r, "%d", done);
    if (bad.n)
        result_fail(r, "NVSwitch fabric: %s", bad.text);
    else if (done)
        result_pass(r, "%d GPUs are part of the NVSwitch fabric", done);
    else
        result_pass(r, "these GPUs do not register with an NVSwitch fabric");
}

/* GB200, GB300, GH200: their NVLink can reach other machines. */
static bool multi_node(const struct answer *a)
{
    const char *name = answer_str_at(a, "gpu", 0, "name", "");
    return strstr(name, "GB200") || strstr(name, "GB300") || strstr(name, "GH200");
}

static void check_imex(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    if (!a)
        return;
    bool channel = machine_exists(v->machine, "dev/nvidia-caps-imex-channels/channel0");
    result_observed(r, "%s", channel ? "channel0" : "none");
    if (!multi_node(a))
        result_pass(r, "NVLink of these GPUs does not leave the machine");
    else if (channel)
        result_pass(r, "/dev/nvidia-caps-imex-channels/channel0");
    else
        result_warn(
            r, "no IMEX channel: NVLink between machines cannot be used (\"Cuda failure 800\")");
}

static bool is_rank(const struct view *v, long pid)
{
    const struct answer *a = machine_answer(v->machine, "ranks");
    int n = answer_count(a, "rank");
    for (int i = 0; i < n; i++) {
        if (answer_int_at(a, "rank", i, "pid", 0) == pid)
            return true;
    }
    return false;
}

static void check_foreign(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list busy = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0;
    char size[32];
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        uint64_t used = (uint64_t)answer_int_at(a, "gpu", i, "memory_used", 0);
        const char *pids = answer_str_at(a, "gpu", i, "pids", "");
        int foreign = 0, ranks = 0;
        for (char *end; *pids; pids = end + (*end == ' ')) {
            long pid = strtol(pids, &end, 10);
            if (end == pids)
                break;
            ranks += is_rank(v, pid);
            foreign += !is_rank(v, pid);
        }
        if (foreign)
            gpu_list_add(&busy, a, i, "has %d other process%s, %s in use", foreign,
                         foreign == 1 ? "" : "es", check_bytes(size, sizeof(size), used));
        else if (!ranks && used > FOREIGN_MIN)
            gpu_list_add(&busy, a, i, "has %s in use by no process that this container can see",
                         check_bytes(size, sizeof(size), used));
    }
    result_observed(r, "%d", busy.n);
    result_expected(r, "0");
    if (busy.n)
        result_warn(r, "%s", busy.text);
    else
        result_pass(r, "no other process uses the %d GPU%s", n, n == 1 ? "" : "s");
}

#define NVML    "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
#define FABRIC  "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/index.html"
#define ON_NODE "on the node: "

static const struct check rows[] = {
    {.id = "compute-mode",
     .code = "HVD5006",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_compute_mode,
     .title = "compute mode",
     .why =
         "In exclusive mode a second process on a GPU gets \"all CUDA-capable devices are busy or "
         "unavailable\"; on a prohibited GPU every process gets it.",
     .fix = {"on the host: nvidia-smi -c DEFAULT", ON_NODE "nvidia-smi -c DEFAULT",
             "nvidia-smi -c DEFAULT"},
     .action = ACTION_HOST,
     .explain = "Prohibited fails; exclusive fails when more ranks than GPUs are wanted here, "
                "otherwise it is a note.",
     .refs = {NVML}},
    {.id = "mig",
     .code = "HVD5007",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_mig,
     .title = "MIG mode of GPUs",
     .why = "NCCL does not connect MIG instances of a GPU: it refuses more than one rank.",
     .fix = {"on the host: nvidia-smi -i N -mig 0, with nothing running on the GPU",
             "ask for nvidia.com/gpu of nodes without MIG (nodeSelector nvidia.com/mig.strategy)",
             "nvidia-smi -i N -mig 0, with nothing running on the GPU"},
     .action = ACTION_HOST,
     .explain =
         "A mode that waits for a reset warns; MIG with several ranks here warns; with one rank "
         "it is a note.",
     .refs = {"https://docs.nvidia.com/datacenter/tesla/mig-user-guide/index.html"}},
    {.id = "persistence-mode",
     .code = "HVD5008",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_persistence,
     .title = "persistence mode",
     .why =
         "Without it the driver unloads when the last program ends: the next start takes seconds a "
         "GPU, and settings are lost.",
     .fix = {"on the host: systemctl enable --now nvidia-persistenced",
             ON_NODE "systemctl enable --now nvidia-persistenced",
             "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1"},
     .action = ACTION_HOST,
     .explain = "nvmlDeviceGetPersistenceMode of each GPU.",
     .refs = {"https://docs.nvidia.com/deploy/driver-persistence/index.html"}},
    {.id = "gpu-p2p",
     .code = "HVD5009",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_p2p,
     .title = "GPUs reach each other's memory",
     .why =
         "Without direct access NCCL copies through the host's memory: several times slower, and "
         "it needs /dev/shm.",
     .fix =
         {"docker run --ipc=host ...; on the host: IOMMU off or ACS off on PCIe bridges",
          ON_NODE "IOMMU off or ACS off on PCIe bridges",
          "kernel parameter iommu=pt or intel_iommu=off, ACS off in the BIOS; consumer GPUs do not "
          "offer it"},
     .action = ACTION_HOST,
     .explain =
         "nvmlDeviceGetP2PStatus for reading, of each pair. `nvidia-smi topo -p2p r` shows the "
         "same table.",
     .refs = {"https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
              "https://github.com/NVIDIA/nccl/issues/631"}},
    {.id = "fabric-state",
     .code = "HVD5010",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_fabric,
     .title = "NVSwitch fabric",
     .why = "Until the fabric manager has registered a GPU, every CUDA program ends with \"system "
            "not yet "
            "initialized\" (802).",
     .fix = {"on the host: systemctl restart nvidia-fabricmanager (of the driver's version)",
             ON_NODE "systemctl restart nvidia-fabricmanager",
             "systemctl restart nvidia-fabricmanager; its version must be the driver's"},
     .action = ACTION_HOST,
     .explain =
         "nvmlDeviceGetGpuFabricInfo: in progress or completed with an error fails. GPUs before "
         "H100 do not register; for A100 with NVSwitch see cuinit.",
     .refs = {FABRIC}},
    {.id = "imex-channel",
     .code = "HVD5011",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_imex,
     .title = "IMEX channel",
     .why =
         "Sharing memory over NVLink between machines needs a channel: without it NCCL ends with "
         "\"Cuda failure 800\" or works without MNNVL.",
     .fix =
         {"docker run --device /dev/nvidia-caps-imex-channels/channel0 ..., or NCCL_MNNVL_ENABLE=0",
          "a ComputeDomain of NVIDIA's DRA driver, or env NCCL_MNNVL_ENABLE=0",
          "nvidia-modprobe -i 0 and systemctl start nvidia-imex, or NCCL_MNNVL_ENABLE=0"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "Only for GB200, GB300 and GH200, whose NVLink can reach other machines: "
                "/dev/nvidia-caps-imex-channels/channel0 must be there.",
     .refs = {"https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/index.html"}},
    {.id = "gpu-foreign-procs",
     .code = "HVD5012",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml", "ranks"},
     .run = check_foreign,
     .title = "no other programs on the GPUs",
     .why = "Programs of an earlier or another job take memory (\"CUDA out of memory\" at once) "
            "and time: all "
            "ranks wait for the slowest GPU.",
     .fix = {"on the host: nvidia-smi says who; end those programs",
             "kubectl delete the pods of those programs; one job a GPU",
             "nvidia-smi says who; end those programs"},
     .action = ACTION_FREE_SPACE,
     .explain = "Warns of compute processes (by NVML) that are not ranks of this job, and of more "
                "than 2 GiB in use without a visible process (own threshold): from inside a "
                "container the processes of other containers are not visible.",
     .refs = {NVML}},
};

const struct check_table checks_gpu_use = {rows, sizeof(rows) / sizeof(*rows)};
