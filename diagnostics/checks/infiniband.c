/* SPDX-License-Identifier: Apache-2.0
 *
 * infiniband: RDMA devices, InfiniBand and RoCE: are they there, up, reachable from this container?
 *
 * Reads /sys/class/infiniband; the probe "infiniband" opens the device files, "ibverbs" the
 * library. Pure functions, run by doctor.c.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "diagnostics/check.h"
#include "diagnostics/checks/nic.h"

#define IB        "sys/class/infiniband"
#define MAX_GIDS  256
#define PORTS_MAX 64

struct port {
    char device[64], number[16];
    char state[32], link[32];
    double rate; /* Gb/s */
    bool active;
};

struct ports {
    struct port list[PORTS_MAX];
    int n, devices;
};

static void port_read(const struct machine *m, struct port *p)
{
    char text[64];
    machine_line(m, p->state, sizeof(p->state), IB "/%s/ports/%s/state", p->device, p->number);
    machine_line(m, p->link, sizeof(p->link), IB "/%s/ports/%s/link_layer", p->device, p->number);
    machine_line(m, text, sizeof(text), IB "/%s/ports/%s/rate", p->device, p->number);
    p->rate = strtod(text, NULL);
    p->active = atoi(p->state) == 4;
    /* "4: ACTIVE" */
    char *word = strstr(p->state, ": ");
    if (word)
        memmove(p->state, word + 2, strlen(word + 2) + 1);
}

/* Fills ret. Returns false when the machine has no RDMA device; the result is then a skip. */
static bool ports_read(const struct view *v, struct result *r, struct ports *ret)
{
    auto_free char **devices = NULL;
    size_t n = 0;
    int rc = machine_list(v->machine, IB, &devices, &n);
    ret->n = 0;
    ret->devices = (int)n;
    if (rc < 0 && rc != -ENOENT) {
        result_skip(r, "/sys/class/infiniband: %s", strerror(-rc));
        return false;
    }
    if (n == 0 && !machine_exists(v->machine, "sys/class")) {
        result_skip(r, "/sys is not there: mount it (read-only is enough)");
        return false;
    }
    if (n == 0) {
        result_skip(r, "does not apply: no InfiniBand or RoCE device");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        auto_free char **numbers = NULL;
        char path[PATH_MAX];
        size_t nports = 0;
        snprintf(path, sizeof(path), IB "/%s/ports", devices[i]);
        if (machine_list(v->machine, path, &numbers, &nports) < 0)
            continue;
        for (size_t j = 0; j < nports && ret->n < PORTS_MAX; j++) {
            struct port *p = &ret->list[ret->n++];
            snprintf(p->device, sizeof(p->device), "%.63s", devices[i]);
            snprintf(p->number, sizeof(p->number), "%.15s", numbers[j]);
            port_read(v->machine, p);
        }
    }
    return true;
}

struct port_list {
    char up[200], down[200];
    int n, active, down_ib; /* ports that NCCL_IB_HCA allows; down_ib: not active, no Ethernet */
    bool one_kind, one_rate;
    const struct port *any; /* an active port */
};

/* Rates are compared within a link layer only: an Ethernet card for storage beside InfiniBand
 * has a rate of its own. */
static void compare_ports(const struct ports *ports, const char *hca, struct port_list *ret)
{
    const struct port *first[2] = {NULL, NULL};
    *ret = (struct port_list){.one_kind = true, .one_rate = true};
    for (int i = 0; i < ports->n; i++) {
        const struct port *p = &ports->list[i];
        bool ethernet = strcmp(p->link, "Ethernet") == 0;
        if (hca && !nccl_takes(hca, p->device))
            continue;
        ret->n++;
        if (!p->active) {
            ret->down_ib += !ethernet;
            check_append(ret->down, sizeof(ret->down), ", ", "%s/%s %s", p->device, p->number,
                         *p->state ? p->state : "unreadable");
            continue;
        }
        check_append(ret->up, sizeof(ret->up), ", ", "%s/%s %s %.0f Gb/s", p->device, p->number,
                     p->link, p->rate);
        if (!first[ethernet])
            first[ethernet] = p;
        ret->one_rate =
            ret->one_rate && p->rate >= first[ethernet]->rate && p->rate <= first[ethernet]->rate;
        ret->any = p;
        ret->active++;
    }
    ret->one_kind = ret->one_rate && !(first[0] && first[1]);
}

static void check_port(const struct view *v, struct result *r)
{
    const char *hca = machine_env(v->machine, "NCCL_IB_HCA");
    struct port_list l;
    struct ports ports;
    if (!ports_read(v, r, &ports))
        return;
    compare_ports(&ports, hca && *hca ? hca : NULL, &l);
    result_observed(r, "%d active of %d", l.active, l.n);
    result_expected(r, "every port in use ACTIVE, at one rate");
    if (ports.n == 0)
        result_skip(r, "%d device%s without a readable port in /sys/class/infiniband",
                    ports.devices, ports.devices == 1 ? "" : "s");
    else if (l.n == 0)
        result_warn(r, "NCCL_IB_HCA=%.100s matches no device: there are %s%s", hca,
                    ports.list[0].device, ports.devices > 1 ? " and others" : "");
    else if (l.active == 0 && (v->setting->profiles & PROFILE_GPU))
        result_fail(r, "no port is active: %s", l.down);
    else if (l.active == 0)
        result_warn(r, "no port is active: %s", l.down);
    else if (l.down_ib)
        result_warn(r, "%d of %d ports not active: %s", l.n - l.active, l.n, l.down);
    else if (!l.one_rate)
        result_warn(r, "ports run at different rates: %s", l.up);
    else if (*l.down)
        result_info(r, "Ethernet ports not active: %s; active: %s", l.down, l.up);
    else if (l.one_kind && l.active > 2)
        result_pass(r, "%d ports, each %s %.0f Gb/s", l.active, l.any->link, l.any->rate);
    else
        result_pass(r, "%s", l.up);
}

static void check_flaps(const struct view *v, struct result *r)
{
    struct ports ports;
    char bad[256] = "", some[256] = "";
    int counted = 0;
    if (!ports_read(v, r, &ports))
        return;
    for (int i = 0; i < ports.n; i++) {
        const struct port *p = &ports.list[i];
        int64_t downed = 0, recovered = 0;
        int rc = machine_int(v->machine, &downed, IB "/%s/ports/%s/counters/link_downed", p->device,
                             p->number);
        int rc2 = machine_int(v->machine, &recovered,
                              IB "/%s/ports/%s/counters/link_error_recovery", p->device, p->number);
        if (rc < 0 && rc2 < 0)
            continue;
        counted++;
        if (downed >= 10 || recovered > 0)
            check_append(bad, sizeof(bad), ", ",
                         "%s/%s down %" PRId64 " times, %" PRId64 " recoveries", p->device,
                         p->number, downed, recovered);
        else if (downed > 0)
            check_append(some, sizeof(some), ", ", "%s/%s %" PRId64, p->device, p->number, downed);
    }
    result_observed(r, "%s", *bad ? bad : *some ? some : "0");
    result_expected(r, "link_downed < 10, link_error_recovery 0");
    if (counted == 0)
        result_skip(r, "no counters under /sys/class/infiniband/*/ports/*/counters");
    else if (*bad)
        result_warn(r, "unstable link: %s", bad);
    else if (*some)
        result_info(r, "times the link went down since the driver was loaded: %s", some);
    else
        result_pass(r, "no link went down, %d port%s", counted, counted == 1 ? "" : "s");
}

static void check_device_files(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "infiniband");
    bool gpu = v->setting->profiles & PROFILE_GPU;
    struct ports ports;
    char refused[200] = "";
    int opened = 0;
    if (!ports_read(v, r, &ports) || !result_needs(r, a, "the files in /dev/infiniband"))
        return;
    int n = answer_count(a, "uverbs");
    for (int i = 0; i < n; i++) {
        int error = (int)answer_int_at(a, "uverbs", i, "errno", 0);
        if (!error)
            opened++;
        else
            check_append(refused, sizeof(refused), ", ", "%s: %s",
                         answer_str_at(a, "uverbs", i, "name", "?"), strerror(error));
    }
    result_observed(r, "%d", opened);
    result_expected(r, "%d", ports.devices);
    if (opened == 0 && gpu)
        result_fail(r, "%d RDMA device%s in /sys, but no /dev/infiniband/uverbs* to open%s%s",
                    ports.devices, ports.devices == 1 ? "" : "s", *refused ? ": " : "", refused);
    else if (opened == 0)
        result_warn(r,
                    "%d RDMA device%s in /sys, but no /dev/infiniband/uverbs* to open%s%s; only "
                    "NCCL, MPI and UCX would use them",
                    ports.devices, ports.devices == 1 ? "" : "s", *refused ? ": " : "", refused);
    else if (*refused || opened < ports.devices)
        result_warn(r, "%d of %d RDMA devices can be opened%s%s", opened, ports.devices,
                    *refused ? ": " : "", refused);
    else
        result_pass(r, "all %d RDMA devices can be opened", opened);
}

static void check_library(const struct view *v, struct result *r)
{
    const struct answer *a = machine_answer(v->machine, "ibverbs");
    struct ports ports;
    if (!ports_read(v, r, &ports) || !result_needs(r, a, "libibverbs"))
        return;
    const char *path = answer_str(a, "path", "");
    const char *error = answer_str(a, "error", "libibverbs.so.1 is not in this image");
    result_observed(r, "%s", path);
    result_expected(r, "libibverbs.so.1");
    if (*path) {
        int64_t seen = answer_int(a, "devices", -1);
        if (seen == 0)
            result_warn(r,
                        "%s finds no device, /sys has %d: a provider library (libmlx5, rdma-core)"
                        " is missing",
                        path, ports.devices);
        else if (seen > 0)
            result_pass(r, "%s, %" PRId64 " device%s", path, seen, seen == 1 ? "" : "s");
        else
            result_pass(r, "%s", path);
    } else if (v->setting->profiles & PROFILE_GPU) {
        result_fail(r, "%d RDMA device%s here, but %s: NCCL will use plain sockets", ports.devices,
                    ports.devices == 1 ? "" : "s", error);
    } else {
        result_warn(r, "%d RDMA device%s here, but %s", ports.devices,
                    ports.devices == 1 ? "" : "s", error);
    }
}

/* ---- RoCE ---- */

struct gids {
    int v1, v2, routed; /* GIDs that are set; routed: RoCE v2 GIDs that are not link-local */
    int wanted; /* the GID of NCCL_IB_GID_INDEX: 1 usable, 0 not usable, -1 the variable is not set
                 */
};

static void gid_read(const struct machine *m, const struct port *p, int index, int wanted,
                     struct gids *g)
{
    char gid[64], type[32];
    if (machine_line(m, gid, sizeof(gid), IB "/%s/ports/%s/gids/%d", p->device, p->number, index) <
            0 ||
        strspn(gid, "0:") == strlen(gid))
        return;
    /* The kernel answers EINVAL for a GID of another network namespace. */
    if (machine_line(m, type, sizeof(type), IB "/%s/ports/%s/gid_attrs/types/%d", p->device,
                     p->number, index) < 0)
        return;
    bool v2 = strstr(type, "v2") != NULL, routed = v2 && strncmp(gid, "fe80:", 5) != 0;
    g->v1 += !v2;
    g->v2 += v2;
    g->routed += routed;
    if (index == wanted)
        g->wanted = v2;
}

static void gids_read(const struct machine *m, const struct port *p, int wanted, struct gids *ret)
{
    auto_free char **names = NULL;
    char path[PATH_MAX];
    size_t n = 0;
    *ret = (struct gids){.wanted = wanted >= 0 ? 0 : -1};
    snprintf(path, sizeof(path), IB "/%s/ports/%s/gids", p->device, p->number);
    if (machine_list(m, path, &names, &n) < 0)
        return;
    for (size_t i = 0; i < n && i < MAX_GIDS; i++)
        gid_read(m, p, atoi(names[i]), wanted, ret);
}

static void check_roce(const struct view *v, struct result *r)
{
    const char *env = machine_env(v->machine, "NCCL_IB_GID_INDEX");
    int wanted = env && *env ? atoi(env) : -1, checked = 0;
    struct ports ports;
    char none[200] = "", local[200] = "", index[200] = "";
    if (!ports_read(v, r, &ports))
        return;
    for (int i = 0; i < ports.n; i++) {
        const struct port *p = &ports.list[i];
        struct gids g;
        if (strcmp(p->link, "Ethernet") != 0 || !p->active)
            continue;
        gids_read(v->machine, p, wanted, &g);
        checked++;
        if (g.v2 == 0)
            check_append(none, sizeof(none), ", ", "%s/%s", p->device, p->number);
        else if (g.wanted == 0)
            check_append(index, sizeof(index), ", ", "%s/%s", p->device, p->number);
        else if (g.routed == 0)
            check_append(local, sizeof(local), ", ", "%s/%s", p->device, p->number);
    }
    result_observed(r, "%s", *none ? none : *index ? index : *local ? local : "v2");
    result_expected(r, "a RoCE v2 GID of an IP address on every port");
    if (checked == 0)
        result_skip(r, "does not apply: no active port with Ethernet as its link layer");
    else if (*none)
        result_fail(r, "no RoCE v2 GID on %s", none);
    else if (*index)
        result_fail(r, "NCCL_IB_GID_INDEX=%d is not a RoCE v2 GID on %s", wanted, index);
    else if (*local)
        result_warn(r, "only link-local RoCE v2 GIDs on %s: no IP address, not routed", local);
    else
        result_pass(r, "RoCE v2 GIDs on %d port%s", checked, checked == 1 ? "" : "s");
}

static bool kernel_has_dmabuf(const struct machine *m)
{
    char version[1024], release[128];
    int major = 0, minor = 0;
    if (machine_line(m, version, sizeof(version), "proc/driver/nvidia/version") < 0 ||
        machine_line(m, release, sizeof(release), "proc/sys/kernel/osrelease") < 0)
        return false;
    return strstr(version, "Open Kernel Module") && sscanf(release, "%d.%d", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 12));
}

static void check_peermem(const struct view *v, struct result *r)
{
    struct ports ports;
    if (!ports_read(v, r, &ports))
        return;
    if (!machine_exists(v->machine, "proc/driver/nvidia/version")) {
        result_skip(r, "does not apply: no NVIDIA driver");
        return;
    }
    result_expected(r, "nvidia_peermem or DMA-BUF");
    for (size_t i = 0; i < 2; i++) {
        const char *name = i ? "nv_peer_mem" : "nvidia_peermem";
        if (machine_exists(v->machine, "sys/module/%s", name)) {
            result_observed(r, "%s", name);
            result_pass(r, "%s is loaded", name);
            return;
        }
    }
    if (kernel_has_dmabuf(v->machine)) {
        result_observed(r, "DMA-BUF");
        result_pass(r, "DMA-BUF: open kernel module on a kernel from 5.12 on");
        return;
    }
    result_observed(r, "none");
    result_warn(r, "neither nvidia_peermem nor DMA-BUF: the network card cannot read GPU memory");
}

#define NCCL_TROUBLE                                                                               \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"

static const struct check rows[] = {
    {.id = "ib-port",
     .code = "HVD8101",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/sys",
     .run = check_port,
     .title = "RDMA ports are active",
     .why = "NCCL does not use a port that is not active: the job falls back to fewer ports or to "
            "plain sockets, several times slower; a port at a lower rate slows the whole ring.",
     .fix = {NULL, "kubectl cordon NODE, then as on a host",
             "ibstat; cable and switch port; for InfiniBand the subnet manager (sminfo) must run"},
     .action = ACTION_HOST,
     .explain =
         "state, rate and link_layer under /sys/class/infiniband/*/ports/*. 4: ACTIVE is "
         "good, 2: INIT means that no subnet manager has set the port up, 1: DOWN that the "
         "cable is out. Rates are compared within a link layer; an Ethernet port that is down "
         "beside active ones is only a note. Ports that NCCL_IB_HCA leaves out do not "
         "count.",
     .refs = {"https://docs.kernel.org/admin-guide/abi-stable.html"}},
    {.id = "ib-flaps",
     .code = "HVD8102",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/sys",
     .run = check_flaps,
     .title = "RDMA links are stable",
     .why = "When a link goes down, NCCL ends with \"Got completion with status=12\" after its "
            "retries; error recovery stalls traffic for seconds.",
     .fix = {NULL, "kubectl cordon NODE, then as on a host",
             "replace the cable or transceiver; perfquery -x shows the counters, perfquery -R "
             "clears them"},
     .action = ACTION_HOST,
     .explain = "Counters link_downed and link_error_recovery of each port since the driver was "
                "loaded. Ten or more times down, or any recovery, warns (own thresholds); a "
                "restart of a switch explains a few. The agent's watch looks at growth.",
     .refs = {"https://docs.kernel.org/admin-guide/abi-stable.html"}},
    {.id = "ib-dev-in-container",
     .code = "HVD8103",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/sys",
     .probes = {"infiniband"},
     .run = check_device_files,
     .title = "RDMA device files in the container",
     .why = "/sys shows the host's devices, but without the files NCCL, UCX and libfabric cannot "
            "use them: plain sockets instead, several times slower, and no error.",
     .fix = {"docker run --device=/dev/infiniband --cap-add=IPC_LOCK --ulimit memlock=-1 ...",
             "resources: {limits: {rdma/hca: 1}} (name as the RDMA device plugin has it) and "
             "capabilities: {add: [IPC_LOCK]}",
             "modprobe ib_uverbs; chmod 666 /dev/infiniband/uverbs* (rdma-core's udev rules)"},
     .action = ACTION_CONTAINER_OPTION,
     .explain = "Counts /sys/class/infiniband and opens each /dev/infiniband/uverbs* in a child "
                "process. EPERM comes from the device cgroup, EACCES from the file mode.",
     .refs = {"https://docs.docker.com/reference/cli/docker/container/run/#device",
              "https://github.com/Mellanox/k8s-rdma-shared-dev-plugin"}},
    {.id = "libibverbs",
     .code = "HVD8104",
     .group = GROUP_NETWORK,
     .level = 1,
     .probes = {"ibverbs"},
     .run = check_library,
     .title = "libibverbs is in the image",
     .why = "NCCL opens libibverbs.so.1 at run time. Without it: \"Failed to open libibverbs.so\", "
            "and plain sockets in place of RDMA.",
     .fix = {"RUN apt-get install -y libibverbs1 ibverbs-providers (Red Hat: libibverbs rdma-core)",
             "an image that has libibverbs1 and ibverbs-providers",
             "apt-get install libibverbs1 ibverbs-providers"},
     .action = ACTION_INSTALL,
     .explain = "Loaded by hvd-probe under the image's own loader, only looked at where "
                "/sys/class/infiniband has a device. The library alone finds no device without "
                "its providers (libmlx5-rdmav34.so ...).",
     .refs = {NCCL_TROUBLE}},
    {.id = "roce-gid",
     .code = "HVD8105",
     .group = GROUP_NETWORK,
     .level = 1,
     .needs = "/sys",
     .run = check_roce,
     .title = "RoCE v2 GIDs",
     .why = "A port without a RoCE v2 GID of an IP address, or a wrong NCCL_IB_GID_INDEX, ends in "
            "\"ibv_modify_qp failed with error Invalid argument\" or time-outs across switches.",
     .fix = {"docker run --network=host ... (the GIDs belong to the host's network namespace)",
             "hostNetwork: true, or an SR-IOV network whose interface is in the pod; unset "
             "NCCL_IB_GID_INDEX with NCCL >= 2.21",
             "give the port's interface an IP address: ip addr add ADDRESS/LEN dev NAME; "
             "cma_roce_mode "
             "-d DEV -m 2"},
     .action = ACTION_NETWORK,
     .explain = "gids/* and gid_attrs/types/* of each active port whose link_layer is Ethernet. An "
                "entry of another network namespace cannot be read and does not count. NCCL from "
                "2.21 on chooses the index itself.",
     .refs = {NCCL_TROUBLE, "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/"
                            "env.html#nccl-ib-gid-index"}},
    {.id = "gdr-peermem",
     .code = "HVD8106",
     .group = GROUP_NETWORK,
     .level = 1,
     .profiles = PROFILE_GPU,
     .needs = "/sys",
     .run = check_peermem,
     .title = "GPUDirect RDMA",
     .why = "Without it every message goes through host memory: about half the bandwidth between "
            "machines, and load on the CPUs.",
     .fix = {NULL, "GPU operator: driver.rdma.enabled=true",
             "modprobe nvidia-peermem; or the open kernel modules with a kernel from 5.12 on "
             "(DMA-BUF)"},
     .action = ACTION_HOST,
     .explain = "/sys/module/nvidia_peermem or nv_peer_mem; else DMA-BUF, which NCCL >= 2.13 uses "
                "with the open kernel modules and Linux >= 5.12. The log with NCCL_DEBUG=INFO says "
                "GDRDMA where it works.",
     .refs = {"https://docs.nvidia.com/cuda/gpudirect-rdma/index.html", NCCL_TROUBLE}},
};

const struct check_table checks_infiniband = {rows, sizeof(rows) / sizeof(*rows)};
