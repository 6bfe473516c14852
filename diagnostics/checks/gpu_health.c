/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_health: memory errors, links, temperature and the driver's Xid messages of each GPU. See
 * check.h; gpu.c has what GPUs there are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnostics/checks/gpu.h"

#define SRAM_MAX     4     /* NVIDIA's limit for replacing a GPU of the A100 kind */
#define REMAP_MAX    512   /* rows that can be remapped */
#define XID_DAY      86400 /* an older Xid is only a warning; own threshold */
#define MARGIN       5     /* degrees Celsius, own threshold */
#define SLOW_HW      0x8u
#define SLOW_THERMAL 0x20u
#define HOT_HW       0x40u
#define BRAKE_HW     0x80u
#define POWER_CAP    0x4u

static void check_ecc(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0}, off = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0, known = 0;
    bool replace = false;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t now = answer_int_at(a, "gpu", i, "ecc_volatile", -1);
        int64_t sram = answer_int_at(a, "gpu", i, "ecc_sram_aggregate", 0);
        known += now >= 0;
        if (now > 0)
            gpu_list_add(&bad, a, i, "has %" PRId64 " uncorrectable errors", now);
        if (sram > SRAM_MAX) {
            gpu_list_add(&bad, a, i, "has had %" PRId64 " SRAM errors in its lifetime", sram);
            replace = true;
        }
        if (answer_int_at(a, "gpu", i, "ecc", 1) == 0)
            gpu_list_add(&off, a, i, "has ECC off");
    }
    result_observed(r, "%d", bad.n);
    result_expected(r, "0");
    if (bad.n) {
        result_fail(r, "%s", bad.text);
        result_action(r, replace ? ACTION_REPLACE_NODE : ACTION_RESET_GPU);
    } else if (off.n) {
        result_info(r, "%s: memory errors go unseen", off.text);
    } else if (!known) {
        result_skip(r, "these GPUs do not count memory errors");
    } else {
        result_pass(r, "no uncorrectable memory error on %d GPU%s", known, known == 1 ? "" : "s");
    }
}

static void check_remap(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0, known = 0;
    bool replace = false;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t rows = answer_int_at(a, "gpu", i, "rows_uncorrected", 0);
        known += answer_int_at(a, "gpu", i, "rows_pending", -1) >= 0 ||
                 answer_int_at(a, "gpu", i, "retired_pending", -1) >= 0;
        if (answer_int_at(a, "gpu", i, "rows_failed", 0) > 0 || rows > REMAP_MAX) {
            gpu_list_add(&bad, a, i, "cannot remap rows any more (%" PRId64 " remapped)", rows);
            replace = true;
        } else if (answer_int_at(a, "gpu", i, "rows_pending", 0) > 0) {
            gpu_list_add(&bad, a, i, "waits for a reset to remap a row");
        } else if (answer_int_at(a, "gpu", i, "retired_pending", 0) > 0) {
            gpu_list_add(&bad, a, i, "waits for a reset to retire a page");
        }
    }
    result_observed(r, "%d", bad.n);
    result_expected(r, "0");
    if (bad.n) {
        result_fail(r, "%s", bad.text);
        result_action(r, replace ? ACTION_REPLACE_NODE : ACTION_RESET_GPU);
    } else if (!known) {
        result_skip(r, "these GPUs do not remap rows");
    } else {
        result_pass(r, "no row waits to be remapped on %d GPU%s", known, known == 1 ? "" : "s");
    }
}

/* ---- Xid ---- */

enum xid_kind { XID_NOTE, XID_APP, XID_LOOK, XID_RESET, XID_REBOOT }; /* from harmless to worst */

/* NVIDIA's catalogue of Xid errors, by the action each needs. A number that is not listed needs
 * a person to look. */
static const struct {
    enum xid_kind kind;
    short codes[20];
} xid_kinds[] = {
    {XID_NOTE, {37, 38, 43, 44, 45, 63, 92, 121, 137, 154, 157}},
    {XID_APP, {8, 11, 13, 31, 32, 39, 40, 41, 69, 94}},
    {XID_RESET, {46, 48, 62, 64, 74, 95, 109, 119, 120, 136, 140, 143, 155, 156, 158}},
    {XID_REBOOT, {79}},
};

static enum xid_kind xid_kind(long code)
{
    for (size_t k = 0; k < sizeof(xid_kinds) / sizeof(*xid_kinds); k++) {
        for (size_t i = 0; xid_kinds[k].codes[i]; i++) {
            if (xid_kinds[k].codes[i] == code)
                return xid_kinds[k].kind;
        }
    }
    return XID_LOOK;
}

/* The number in a line "NVRM: Xid (PCI:0000:3b:00): 79, ..."; -1: an SXid or another line. */
static long xid_code(const char *line)
{
    const char *at = strstr(line, "NVRM: Xid (");
    at = at ? strstr(at, "): ") : NULL;
    return at ? strtol(at + 3, NULL, 10) : -1;
}

static void check_xid(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "kmsg");
    enum xid_kind worst = XID_NOTE;
    const char *worst_line = NULL;
    int64_t worst_age = -1;
    int n = answer_count(a, "xid");
    if (a->state == ANSWER_FAILED) {
        result_skip(r, "the kernel log is not readable: run with CAP_SYSLOG (docker run --cap-add "
                       "SYSLOG)");
        return;
    }
    if (!result_needs(r, a, "the kernel log"))
        return;
    for (int i = 0; i < n; i++) {
        const char *line = answer_str_at(a, "xid", i, "line", "");
        enum xid_kind kind = xid_code(line) < 0 ? XID_LOOK : xid_kind(xid_code(line));
        if (!worst_line || kind >= worst) {
            worst = kind;
            worst_line = line;
            worst_age = answer_int_at(a, "xid", i, "age_s", -1);
        }
    }
    int64_t total = answer_int(a, "xid_count", n);
    result_observed(r, "%" PRId64, total);
    result_expected(r, "0");
    if (!worst_line) {
        result_pass(r, "no Xid in the kernel log");
    } else if (worst == XID_NOTE) {
        result_info(r, "%" PRId64 " Xid, nothing to do: %.200s", total, worst_line);
    } else if (worst == XID_APP) {
        result_warn(r, "%" PRId64 " Xid caused by programs: %.200s", total, worst_line);
        result_action(r, ACTION_JOB);
    } else if (worst > XID_LOOK && worst_age > XID_DAY) {
        result_warn(r, "%" PRId64 " Xid, the worst %" PRId64 " days ago: %.200s", total,
                    worst_age / XID_DAY, worst_line);
    } else if (worst == XID_LOOK) {
        result_warn(r, "%" PRId64 " Xid: %.200s", total, worst_line);
    } else {
        result_fail(r, "%" PRId64 " Xid, %s: %.200s", total,
                    worst == XID_REBOOT ? "the machine must be restarted" : "reset the GPU",
                    worst_line);
        result_action(r, worst == XID_REBOOT ? ACTION_REBOOT : ACTION_RESET_GPU);
    }
}

/* ---- clocks and heat ---- */

static void check_throttle(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0}, capped = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0, known = 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t why = answer_int_at(a, "gpu", i, "throttle", -1);
        known += why >= 0;
        if (why < 0)
            continue;
        if (why & (HOT_HW | SLOW_THERMAL))
            gpu_list_add(&bad, a, i, "is slowed by heat");
        else if (why & BRAKE_HW)
            gpu_list_add(&bad, a, i, "is slowed by the power supply's brake");
        else if (why & SLOW_HW)
            gpu_list_add(&bad, a, i, "is slowed by hardware");
        else if (why & POWER_CAP)
            gpu_list_add(&capped, a, i, "is at its power limit");
    }
    result_observed(r, "%d", bad.n);
    result_expected(r, "0");
    if (bad.n)
        result_warn(r, "%s", bad.text);
    else if (capped.n)
        result_info(r, "%s", capped.text);
    else if (!known)
        result_skip(r, "these GPUs do not report why clocks are low");
    else
        result_pass(r, "no GPU of %d is slowed down", known);
}

static void check_temperature(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0, known = 0;
    int64_t hottest = 0, least = INT64_MAX;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t now = answer_int_at(a, "gpu", i, "celsius", -1);
        int64_t max = answer_int_at(a, "gpu", i, "celsius_max",
                                    answer_int_at(a, "gpu", i, "celsius_slowdown", -1));
        if (now < 0 || max <= 0)
            continue;
        known++;
        hottest = now > hottest ? now : hottest;
        least = max - now < least ? max - now : least;
        if (max - now <= MARGIN)
            gpu_list_add(&bad, a, i, "has %" PRId64 " C of %" PRId64, now, max);
    }
    if (!known) {
        result_skip(r, "these GPUs do not report their temperature limits");
        return;
    }
    result_observed(r, "margin %" PRId64 " C", least);
    result_expected(r, "> %d C", MARGIN);
    if (bad.n)
        result_warn(r, "%s", bad.text);
    else
        result_pass(
            r, "the hottest GPU has %" PRId64 " C; each is %" PRId64 " C or more below its limit",
            hottest, least);
}

/* ---- links ---- */

static void check_pcie(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list narrow = {.n = 0}, slow = {.n = 0}, idle = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0, known = 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t width = answer_int_at(a, "gpu", i, "pcie_width", 0);
        int64_t wmax = answer_int_at(a, "gpu", i, "pcie_width_max", 0);
        int64_t gen = answer_int_at(a, "gpu", i, "pcie_gen", 0);
        int64_t gmax = answer_int_at(a, "gpu", i, "pcie_gen_max", 0);
        bool busy = answer_int_at(a, "gpu", i, "pstate", 8) <= 2;
        known += width > 0 && gen > 0;
        if (width > 0 && width < wmax)
            gpu_list_add(&narrow, a, i, "has x%" PRId64 " of x%" PRId64, width, wmax);
        else if (gen > 0 && gen < gmax && busy)
            gpu_list_add(&slow, a, i, "runs PCIe gen %" PRId64 " of %" PRId64, gen, gmax);
        else if (gen > 0 && gen < gmax)
            gpu_list_add(&idle, a, i, "gen %" PRId64 " of %" PRId64, gen, gmax);
    }
    result_observed(r, "%d", narrow.n + slow.n);
    result_expected(r, "0");
    if (narrow.n)
        result_warn(r, "%s", narrow.text);
    else if (slow.n)
        result_warn(r, "%s while it is busy", slow.text);
    else if (idle.n)
        result_info(r, "idle links are slow, which saves power: %s", idle.text);
    else if (!known)
        result_skip(r, "these GPUs do not report their PCIe link");
    else
        result_pass(r, "all %d GPUs use the full width and speed of their PCIe link", known);
}

static void check_nvlink(const struct view *v, struct result *r)
{
    const struct answer *a = gpu_nvml(v, r);
    struct gpu_list bad = {.n = 0};
    int n = a ? answer_count(a, "gpu") : 0;
    int64_t most = 0, all = 0;
    if (!a)
        return;
    for (int i = 0; i < n; i++) {
        int64_t up = answer_int_at(a, "gpu", i, "links", 0);
        most = up > most ? up : most;
        all += up;
    }
    for (int i = 0; i < n && most; i++) {
        int64_t up = answer_int_at(a, "gpu", i, "links", 0);
        if (up < most)
            gpu_list_add(&bad, a, i, "has %" PRId64 " of %" PRId64 " NVLinks up", up, most);
    }
    result_observed(r, "%" PRId64, all);
    result_expected(r, "%" PRId64, most * n);
    if (bad.n)
        result_warn(r, "%s", bad.text);
    else if (most)
        result_pass(r, "%" PRId64 " NVLinks up on each of %d GPUs", most, n);
    else if (answer_int_at(a, "gpu", 0, "links_down", 0) > 0 && n > 1)
        result_info(r, "GPUs with NVLink, and no link is up (no bridge or switch)");
    else
        result_pass(r, "no NVLink on these GPUs");
}

#define XID_DOCS "https://docs.nvidia.com/deploy/xid-errors/index.html"
#define MEM_DOCS "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/index.html"
#define NVML     "https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html"
#define RESET    "nvidia-smi --gpu-reset -i N on the host, with nothing running on it"

static const struct check rows[] = {
    {.id = "gpu-ecc-uncorr",
     .code = "HVD5041",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_ecc,
     .title = "uncorrectable memory errors",
     .why =
         "A process that touches the bad memory ends with \"uncorrectable ECC error encountered\"; "
         "a new process on the same GPU will end the same way.",
     .fix = {RESET, "kubectl drain NODE, then " RESET, RESET "; replace the GPU when they return"},
     .action = ACTION_RESET_GPU,
     .explain = "Uncorrectable errors since the driver was loaded: any fails. More than 4 in SRAM "
                "over the GPU's life fail too: NVIDIA recommends its field diagnostic tool then.",
     .refs = {MEM_DOCS, NVML}},
    {.id = "gpu-row-remap",
     .code = "HVD5042",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_remap,
     .title = "remapped memory rows",
     .why =
         "A row that waits to be remapped still holds bad memory; when none is left to remap, the "
         "GPU has to be replaced.",
     .fix = {RESET, "kubectl drain NODE, then " RESET, RESET},
     .action = ACTION_RESET_GPU,
     .explain =
         "nvmlDeviceGetRemappedRows: pending fails until a reset, a failed remapping or more "
         "than 512 rows fail for good. GPUs before A100 retire pages instead.",
     .refs = {MEM_DOCS}},
    {.id = "gpu-xid",
     .code = "HVD5043",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "CAP_SYSLOG",
     .probes = {"kmsg"},
     .run = check_xid,
     .title = "Xid errors of the driver",
     .why = "The driver tells the kernel log what a program only sees as \"CUDA error: unspecified "
            "launch failure\".",
     .fix = {RESET, "kubectl drain NODE, then " RESET,
             RESET "; for 79 (fallen off the bus) restart the machine"},
     .action = ACTION_HOST,
     .explain =
         "By NVIDIA's catalogue: 8 11 13 31 32 39-41 69 94 are the program's, 46 48 62 64 74 95 "
         "109 119 120 136 140 143 155 156 158 want a reset, 79 a restart; 37 38 43-45 63 92 121 "
         "137 154 157 are notes. Others, SXid (switches) and what is older than a day warn.",
     .refs = {XID_DOCS}},
    {.id = "gpu-throttle",
     .code = "HVD5044",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_throttle,
     .title = "GPUs are not slowed down",
     .why = "All ranks wait for the slowest GPU at each step.",
     .fix = {"on the host: look at fans, air flow and power supplies; nvidia-smi -q -d PERFORMANCE",
             "kubectl cordon NODE; then look at cooling and power",
             "look at fans, air flow and power supplies; nvidia-smi -q -d PERFORMANCE"},
     .action = ACTION_HOST,
     .explain =
         "Reasons of nvmlDeviceGetCurrentClocksEventReasons at this moment: heat, power brake "
         "and hardware slow-down warn, the power limit is a note.",
     .refs = {"https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"}},
    {.id = "gpu-temp",
     .code = "HVD5045",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_temperature,
     .title = "temperature of GPUs",
     .why = "A few degrees more and the GPU slows itself down, in the middle of a long training.",
     .fix = {"on the host: look at fans and air flow", "kubectl cordon NODE; then look at cooling",
             "look at fans and air flow; nvidia-smi -q -d TEMPERATURE"},
     .action = ACTION_HOST,
     .explain = "Five degrees or less below the GPU's own limit warn (own threshold).",
     .refs = {NVML}},
    {.id = "gpu-pcie-link",
     .code = "HVD5046",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_pcie,
     .title = "PCIe links of GPUs",
     .why = "A link of half the width halves what the GPU exchanges with host and network.",
     .fix = {"on the host: reseat the GPU or riser, look into the BIOS (PCIe bifurcation)",
             "kubectl cordon NODE; then reseat the GPU or riser",
             "reseat the GPU or riser, look into the BIOS (PCIe bifurcation, link speed)"},
     .action = ACTION_HOST,
     .explain =
         "Fewer lanes than the GPU and slot can warn always. The generation falls on idle GPUs: "
         "it warns only in performance state P0 to P2.",
     .refs = {NVML}},
    {.id = "nvlink-state",
     .code = "HVD5047",
     .group = GROUP_GPU,
     .level = 1,
     .needs = "an NVIDIA driver",
     .probes = {"nvml"},
     .run = check_nvlink,
     .title = "NVLinks are up",
     .why = "With links down NCCL goes over PCIe, and NCCL before 2.12.7 could even corrupt data.",
     .fix = {RESET, "kubectl drain NODE, then " RESET,
             "nvidia-smi nvlink -s says which; " RESET "; check bridges and fabric manager"},
     .action = ACTION_RESET_GPU,
     .explain = "nvmlDeviceGetNvLinkState of every link; a GPU with fewer links up than its best "
                "neighbour warns.",
     .refs = {"https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html"}},
};

const struct check_table checks_gpu_health = {rows, sizeof(rows) / sizeof(*rows)};
