/* SPDX-License-Identifier: Apache-2.0
 *
 * host: kernel, hypervisor, PCI and the settings of the machine that slow jobs down.
 *
 * Reads /proc, /sys and the answers "system" and "pci-acs". Pure functions, run by doctor.c.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/rules.h"

#define OFFSET_WARN_US 100000
#define KERNEL_OLD     "4.18"

static const struct answer *system_answer(const struct view *v, struct result *r, const char *what)
{
    const struct answer *a = machine_answer(v->machine, "system");
    return result_needs(r, a, what) ? a : NULL;
}

static void check_kernel(const struct view *v, struct result *r)
{
    const struct answer *a = system_answer(v, r, "the kernel's version");
    if (!a)
        return;
    const char *release = answer_str(a, "release", "?");
    result_observed(r, "%s", release);
    result_expected(r, ">= " KERNEL_OLD);
    if (version_compare(release, KERNEL_OLD) < 0)
        result_warn(r, "Linux %s on %s: older than " KERNEL_OLD ", today's images expect more",
                    release, answer_str(a, "machine", "?"));
    else
        result_info(r, "Linux %s on %s", release, answer_str(a, "machine", "?"));
}

/* The hypervisor's name as people know it; NULL: bare metal or unknown. */
static const char *hypervisor(const struct view *v)
{
    static const char *const names[][2] = {
        {"KVMKVMKVM", "KVM"},      {"Microsoft Hv", "Hyper-V"}, {"VMwareVMware", "VMware"},
        {"XenVMMXenVMM", "Xen"},   {"TCGTCGTCGTCG", "QEMU"},    {"VBoxVBoxVBox", "VirtualBox"},
        {"bhyve bhyve ", "bhyve"}, {"prl hyperv", "Parallels"}, {" lrpepyh  vr", "Parallels"},
        {"ACRNACRNACRN", "ACRN"},  {"QNXQVMBSQG", "QNX"}};
    const char *virt = answer_str(machine_answer(v->machine, "system"), "virt", "none");
    if (strcmp(virt, "none") == 0)
        return NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(virt, names[i][0]) == 0)
            return names[i][1];
    return virt;
}

static void check_virt(const struct view *v, struct result *r)
{
    if (!system_answer(v, r, "the processor's identification"))
        return;
    const char *name = hypervisor(v);
    result_observed(r, "%s", name ? name : "none");
    if (name)
        result_info(r, "a virtual machine (%s): its clocks, PCI paths and NUMA nodes are simulated",
                    name);
    else
        result_pass(r, "no hypervisor: bare metal");
}

/* How many device groups the IOMMU translates for (type DMA or DMA-FQ; identity is
 * pass-through); ret_all: how many there are. */
static int translated_groups(const struct machine *m, int *ret_all)
{
    auto_free char **names = NULL;
    int n = 0, all = 0;
    if (machine_list(m, "sys/kernel/iommu_groups", &names, NULL) == 0) {
        for (size_t i = 0; names[i]; i++) {
            char type[32];
            if (machine_line(m, type, sizeof(type), "sys/kernel/iommu_groups/%s/type", names[i]) <
                0)
                continue;
            all++;
            n += strncmp(type, "DMA", 3) == 0;
        }
    }
    *ret_all = all;
    return n;
}

static void check_iommu(const struct view *v, struct result *r)
{
    auto_free char **units = NULL;
    size_t n = 0;
    int all, translated = translated_groups(v->machine, &all);
    const char *name = hypervisor(v);
    bool arm =
        strcmp(answer_str(machine_answer(v->machine, "system"), "machine", ""), "aarch64") == 0;
    if (machine_list(v->machine, "sys/class/iommu", &units, &n) < 0) {
        if (machine_exists(v->machine, "sys/class"))
            result_pass(r, "the kernel has no IOMMU support");
        else
            result_skip(r, "/sys is not there");
        return;
    }
    const char *s = translated == 1 ? "" : "s";
    result_observed(r, "%zu units, %d of %d groups translated", n, translated, all);
    result_expected(r, "off or pass-through");
    if (n == 0)
        result_pass(r, "no IOMMU is on");
    else if (translated == 0)
        result_pass(r, "the IOMMU is on in pass-through mode");
    else if (name || arm)
        result_info(r, "the IOMMU translates for %d group%s of devices, as %s requires", translated,
                    s, name ? "the virtual machine's host" : "this architecture");
    else if (v->setting->profiles & PROFILE_GPU)
        result_warn(r,
                    "the IOMMU translates for %d group%s of devices: GPUs cannot write to each "
                    "other directly",
                    translated, s);
    else
        result_info(r,
                    "the IOMMU translates for %d group%s of devices; it matters between GPUs only",
                    translated, s);
}

static void check_acs(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "pci-acs");
    const char *name = hypervisor(v);
    if (name) {
        result_skip(r,
                    "does not apply: the PCI bridges of a virtual machine (%s) are the "
                    "hypervisor's",
                    name);
        return;
    }
    if (!result_needs(r, a, "PCI bridges"))
        return;
    if (!answer_has(a, "bridges")) {
        result_skip(r, "the answer about PCI bridges is incomplete");
        return;
    }
    long long bridges = (long long)answer_int(a, "bridges", 0),
              on = (long long)answer_int(a, "on", 0);
    long long unreadable = (long long)answer_int(a, "unreadable", 0);
    result_observed(r, "%lld of %lld", on, bridges);
    result_expected(r, "0");
    if (on > 0)
        result_warn(r,
                    "ACS sends traffic between GPUs up to the processor on %lld of %lld PCI "
                    "bridges (%s ...)",
                    on, bridges, answer_str(a, "first", "?"));
    else if (unreadable > 0)
        result_skip(r,
                    "%lld of %lld PCI bridges cannot be read: run as root on the host "
                    "(CAP_SYS_ADMIN)",
                    unreadable, bridges);
    else
        result_pass(r, "no ACS redirection on %lld PCI bridges", bridges);
}

static void check_nouveau(const struct view *v, struct result *r)
{
    bool loaded = machine_exists(v->machine, "sys/module/nouveau");
    result_observed(r, "%s", loaded ? "loaded" : "not loaded");
    result_expected(r, "not loaded");
    if (!machine_exists(v->machine, "sys/module"))
        result_skip(r, "/sys/module is not there");
    else if (!loaded)
        result_pass(r, "nouveau is not loaded");
    else if (v->setting->profiles & PROFILE_GPU)
        result_fail(r, "the kernel module nouveau is loaded: NVIDIA's driver cannot have the GPUs");
    else
        result_info(r, "the kernel module nouveau is loaded: no CUDA on this machine");
}

static int count_nodes(const struct machine *m)
{
    auto_free char **names = NULL;
    int n = 0;
    if (machine_list(m, "sys/devices/system/node", &names, NULL) < 0)
        return 1;
    for (size_t i = 0; names[i]; i++)
        n += strncmp(names[i], "node", 4) == 0;
    return n > 0 ? n : 1;
}

static void check_balancing(const struct view *v, struct result *r)
{
    int64_t on;
    int nodes = count_nodes(v->machine);
    int rc = machine_int(v->machine, &on, "proc/sys/kernel/numa_balancing");
    if (rc == -ENOENT && machine_exists(v->machine, "proc/sys/kernel")) {
        result_pass(r, "the kernel has no automatic NUMA balancing");
        return;
    }
    if (rc < 0) {
        result_skip(r, "/proc/sys/kernel/numa_balancing: %s", strerror(-rc));
        return;
    }
    result_observed(r, "%lld", (long long)on);
    result_expected(r, "0");
    if (on == 0)
        result_pass(r, "automatic NUMA balancing is off");
    else if (nodes < 2)
        result_pass(r, "automatic NUMA balancing has nothing to do: one NUMA node");
    else
        result_warn(r,
                    "kernel.numa_balancing=%lld on %d NUMA nodes: the kernel unmaps pages to see "
                    "who uses them",
                    (long long)on, nodes);
}

static void check_thp(const struct view *v, struct result *r)
{
    char line[128], mode[32] = "";
    int rc =
        machine_line(v->machine, line, sizeof(line), "sys/kernel/mm/transparent_hugepage/enabled");
    const char *open = rc < 0 ? NULL : strchr(line, '[');
    if (!open || sscanf(open, "[%31[^]]]", mode) != 1) {
        result_skip(r, "/sys/kernel/mm/transparent_hugepage/enabled: %s",
                    rc < 0 ? strerror(-rc) : "not understood");
        return;
    }
    result_observed(r, "%s", mode);
    result_expected(r, "madvise or always");
    if (strcmp(mode, "never") == 0)
        result_info(r, "no transparent huge pages (never): large tensors on CPUs are some percent "
                       "slower");
    else
        result_pass(r, "transparent huge pages: %s", mode);
}

static void check_clock(const struct view *v, struct result *r)
{
    const struct answer *a = system_answer(v, r, "the clock");
    if (!a)
        return;
    int error = (int)answer_int(a, "clock.errno", 0);
    int64_t unsync = answer_int(a, "clock.unsync", -1);
    int64_t offset = answer_int(a, "clock.offset_us", 0);
    if (error || unsync < 0) {
        result_skip(r, "adjtimex: %s", error ? strerror(error) : "no answer");
        return;
    }
    result_observed(r, "%s", unsync ? "not synchronized" : "synchronized");
    result_expected(r, "synchronized");
    if (unsync)
        result_warn(r, "no service synchronizes the clock (the kernel reports: not synchronized)");
    else if (offset > OFFSET_WARN_US || offset < -OFFSET_WARN_US)
        result_warn(r, "the clock is %lld ms off and being corrected", (long long)offset / 1000);
    else
        result_pass(r, "the clock is synchronized, %lld us off", (long long)offset);
}

static bool under_mpi(const struct machine *m)
{
    return machine_env(m, "OMPI_COMM_WORLD_SIZE") || machine_env(m, "PMIX_RANK") ||
           machine_env(m, "PMI_RANK");
}

static void check_ptrace(const struct view *v, struct result *r)
{
    int64_t scope;
    int rc = machine_int(v->machine, &scope, "proc/sys/kernel/yama/ptrace_scope");
    if (rc == -ENOENT && machine_exists(v->machine, "proc/sys/kernel")) {
        result_pass(r, "no Yama: processes of one user may read each other's memory");
        return;
    }
    if (rc < 0) {
        result_skip(r, "/proc/sys/kernel/yama/ptrace_scope: %s", strerror(-rc));
        return;
    }
    result_observed(r, "%lld", (long long)scope);
    result_expected(r, "0");
    if (scope == 0)
        result_pass(r, "kernel.yama.ptrace_scope=0");
    else if (under_mpi(v->machine))
        result_warn(r, "kernel.yama.ptrace_scope=%lld: MPI copies between local ranks twice",
                    (long long)scope);
    else
        result_info(r,
                    "kernel.yama.ptrace_scope=%lld: py-spy and gdb need root to attach; MPI would "
                    "copy between local ranks twice",
                    (long long)scope);
}

static void check_entropy(const struct view *v, struct result *r)
{
    const struct answer *a = system_answer(v, r, "random numbers");
    if (!a)
        return;
    const char *random = answer_str(a, "random", "unknown");
    result_observed(r, "%s", random);
    result_expected(r, "ready");
    if (strcmp(random, "ready") == 0)
        result_pass(r, "random numbers do not block");
    else if (strcmp(random, "blocks") == 0)
        result_warn(
            r,
            "random numbers block: the kernel has collected too little entropy since the machine "
            "started");
    else
        result_skip(r, "getrandom could not be tried");
}

#define SYSCTL_KERNEL "https://docs.kernel.org/admin-guide/sysctl/kernel.html"
#define NCCL_TROUBLE                                                                               \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

static const struct check rows[] = {
    {.id = "kernel-version",
     .code = "HVD1001",
     .group = GROUP_HOST,
     .level = 1,
     .probes = {"system"},
     .run = check_kernel,
     .title = "the kernel",
     .why =
         "All containers of a machine share its kernel: an image cannot add what the kernel lacks.",
     .fix = {NULL, "kubectl get nodes -o wide shows the kernel of each",
             "uname -r; a newer kernel"},
     .action = ACTION_HOST,
     .explain =
         "uname. Older than 4.18, Red Hat 8's, warns (own threshold): nobody tests today's images "
         "and drivers on it.",
     .refs = {"https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"}},
    {.id = "virt-type",
     .code = "HVD1002",
     .group = GROUP_HOST,
     .level = 1,
     .probes = {"system"},
     .run = check_virt,
     .title = "virtual machine or bare metal",
     .why = "In a virtual machine the PCI topology that NCCL reads may not be the real one: set "
            "NCCL_TOPO_FILE to the provider's file.",
     .fix = {NULL, NULL, "export NCCL_TOPO_FILE=/path/of/the/provider.xml where there is one"},
     .action = ACTION_ENVIRONMENT,
     .explain = "The hypervisor's leaf of cpuid. Checks of PCI bridges and the IOMMU depend on it.",
     .refs = {NCCL_TROUBLE, "https://docs.kernel.org/virt/kvm/x86/cpuid.html"}},
    {.id = "iommu-mode",
     .code = "HVD1003",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/sys",
     .probes = {"system"},
     .run = check_iommu,
     .title = "IOMMU does not block GPU access",
     .why = "With a translating IOMMU on bare metal GPUs cannot write to each other over PCI: NCCL "
            "hangs in its first collective, or P2P gives wrong data.",
     .fix = {NULL, "as on a host, on the node",
             "kernel command line: iommu=pt (or intel_iommu=off, amd_iommu=off), reboot; until "
             "then: export NCCL_P2P_DISABLE=1"},
     .action = ACTION_HOST,
     .explain = "/sys/class/iommu and the types of /sys/kernel/iommu_groups: DMA is translated, "
                "identity is pass-through. Warns on bare metal in GPU jobs.",
     .refs = {"https://github.com/NVIDIA/nccl/issues/257",
              "https://github.com/NVIDIA/nccl/issues/631", NCCL_TROUBLE}},
    {.id = "pci-acs",
     .code = "HVD1004",
     .group = GROUP_HOST,
     .level = 1,
     .profiles = PROFILE_GPU,
     .needs = "root on the host",
     .probes = {"system", "pci-acs"},
     .run = check_acs,
     .title = "ACS of PCI bridges is off",
     .why =
         "With ACS traffic between GPUs and network cards goes up to the processor and back: half "
         "the bandwidth, or a hang.",
     .fix =
         {NULL, "as on a host, on the node",
          "for each bridge: setpci -s BRIDGE ECAP_ACS+0x6.w=0000 (until the next reboot), or ACS "
          "off in the BIOS"},
     .action = ACTION_HOST,
     .explain =
         "Capability 0x0d of each bridge (class 0x0604) in /sys/bus/pci/devices/*/config: "
         "request and completion redirect. Bare metal only; in virtual machines ACS must stay "
         "on.",
     .refs = {NCCL_TROUBLE}},
    {.id = "nouveau-loaded",
     .code = "HVD1005",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/sys",
     .run = check_nouveau,
     .title = "nouveau is not loaded",
     .why = "nouveau, the open-source driver, holds the GPUs; NVIDIA's driver then finds none "
            "(\"No devices were found\").",
     .fix = {NULL, "as on a host, on the node; the GPU operator does it with driver.enabled=true",
             "printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > "
             "/etc/modprobe.d/nouveau.conf; update-initramfs -u (dracut -f); reboot"},
     .action = ACTION_HOST,
     .explain = "/sys/module/nouveau: the machine's, in a container too. Fails in GPU jobs.",
     .refs = {"https://docs.nvidia.com/cuda/cuda-installation-guide-linux/"}},
    {.id = "numa-balancing",
     .code = "HVD1006",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/proc/sys",
     .run = check_balancing,
     .title = "automatic NUMA balancing",
     .why = "The kernel unmaps pages to see who uses them: faults in the middle of steps, more "
            "jitter, "
            "with GPUs clearly slower.",
     .fix = {NULL, "as on a host, on the node (a DaemonSet that sets sysctls)",
             "sysctl -w kernel.numa_balancing=0; for good in /etc/sysctl.d/hvd.conf"},
     .action = ACTION_HOST,
     .explain = "/proc/sys/kernel/numa_balancing other than 0 on two or more NUMA nodes warns, as "
                "NCCL itself does.",
     .refs = {NCCL_TROUBLE, SYSCTL_KERNEL}},
    {.id = "thp-mode",
     .code = "HVD1007",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/sys",
     .run = check_thp,
     .title = "transparent huge pages",
     .why = "Large buffers on small pages cost translations: some percent of a CPU job.",
     .fix = {NULL, "as on a host, on the node",
             "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"},
     .action = ACTION_HOST,
     .explain =
         "/sys/kernel/mm/transparent_hugepage/enabled: always and madvise are good, never is "
         "information.",
     .refs = {"https://docs.kernel.org/admin-guide/mm/transhuge.html"}},
    {.id = "clock-sync",
     .code = "HVD1008",
     .group = GROUP_HOST,
     .level = 1,
     .probes = {"system"},
     .run = check_clock,
     .title = "the clock is synchronized",
     .why = "TLS certificates and tokens are refused (\"not yet valid\"), logs of several machines "
            "cannot be put in order, Kerberos and file servers fail.",
     .fix = {NULL, "as on a host, on the node",
             "systemctl enable --now chrony (or systemd-timesyncd); "
             "chronyc tracking"},
     .action = ACTION_HOST,
     .explain =
         "adjtimex: STA_UNSYNC, or more than 100 ms off (own threshold), warns. Virtual "
         "machines whose hypervisor synchronizes the clock may warn without need. Skew between "
         "workers: xw-clock-skew.",
     .refs = {"https://man7.org/linux/man-pages/man2/adjtimex.2.html"}},
    {.id = "ptrace-scope",
     .code = "HVD1009",
     .group = GROUP_HOST,
     .level = 1,
     .needs = "/proc/sys",
     .run = check_ptrace,
     .title = "Yama lets ranks read each other's memory",
     .why = "Where Yama forbids it, Open MPI copies messages between local ranks twice; UCX and "
            "older Open MPI fail with \"process_vm_readv delivered 0\".",
     .fix = {NULL,
             "as on a host, on the node; or env: OMPI_MCA_btl_vader_single_copy_mechanism=none",
             "sysctl -w kernel.yama.ptrace_scope=0; or export "
             "OMPI_MCA_btl_vader_single_copy_mechanism=none"},
     .action = ACTION_HOST,
     .explain = "/proc/sys/kernel/yama/ptrace_scope: 1 or more warns in ranks of MPI, else is "
                "information. Whether reading is really refused: cap-sys-ptrace.",
     .refs = {"https://docs.kernel.org/admin-guide/LSM/Yama.html"}},
    {.id = "entropy",
     .code = "HVD1010",
     .group = GROUP_HOST,
     .level = 1,
     .probes = {"system"},
     .run = check_entropy,
     .title = "random numbers do not block",
     .why = "Python, TLS and ssh wait for the first random numbers: everything hangs for minutes "
            "after "
            "the machine has started.",
     .fix = {NULL, NULL,
             "a virtual machine: add a virtio-rng device; else apt-get install rng-tools5"},
     .action = ACTION_HOST,
     .explain =
         "getrandom without waiting. Since Linux 5.6 it blocks only in the first seconds after "
         "the start.",
     .refs = {"https://man7.org/linux/man-pages/man2/getrandom.2.html"}},
};

const struct check_table checks_host = {rows, sizeof(rows) / sizeof(*rows)};
