/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_ifname: which interfaces NCCL will take for its sockets, by its own rules.
 *
 * The probe "network" lists the interfaces. Pure functions, run by doctor.c.
 */
#include <stdio.h>
#include <string.h>

#include "diagnostics/check.h"
#include "diagnostics/checks/nic.h"

static int nccl_choose(const struct nics *nics, const char *value, const struct nic **ret)
{
    int n = 0;
    for (int i = 0; i < nics->n; i++) {
        const struct nic *nic = &nics->list[i];
        if (nic->up && nic->has_addr && nccl_takes(value, nic->name))
            ret[n++] = &nics->list[i];
    }
    return n;
}

/* The value of NCCL_SOCKET_IFNAME; NULL: not set, or of one character, which NCCL ignores. */
static const char *nccl_ifname(const struct view *v)
{
    const char *value = machine_env(v->machine, "NCCL_SOCKET_IFNAME");
    return value && value[0] && value[1] ? value : NULL;
}

static void list_chosen(const struct nic *const *chosen, int n, char *dst, size_t size)
{
    *dst = '\0';
    for (int i = 0; i < n; i++)
        check_append(dst, size, ", ", "%s", chosen[i]->name);
}

static void check_nccl_match(const struct view *v, struct result *r)
{
    const char *value = nccl_ifname(v);
    const struct nic *chosen[NIC_MAX];
    struct nics nics;
    char names[256], taken[256];
    if (!value) {
        result_pass(r, "NCCL_SOCKET_IFNAME is not set: NCCL chooses itself");
        return;
    }
    if (!nics_read(v, r, &nics))
        return;
    nics_names(&nics, nic_has_address, names, sizeof(names));
    int n = nccl_choose(&nics, value, chosen);
    list_chosen(chosen, n, taken, sizeof(taken));
    result_observed(r, "%s", taken);
    result_expected(r, "one of: %s", names);
    if (n == 0) {
        result_fail(r, "NCCL_SOCKET_IFNAME=%s matches no interface; there are: %s", value,
                    *names ? names : "none but loopback");
        result_fix(r, FIX_HOST, "export NCCL_SOCKET_IFNAME==%.100s", *names ? names : "lo");
    } else if (n == 1 && chosen[0]->loopback && job_spans_machines(v->setting) > 0) {
        result_fail(r, "NCCL_SOCKET_IFNAME=%s takes only loopback, other machines have ranks too",
                    value);
    } else {
        result_pass(r, "NCCL_SOCKET_IFNAME=%s takes %s", value, taken);
    }
}

static void check_nccl_virtual(const struct view *v, struct result *r)
{
    /* NCCL's order of tries as of 2.30; older versions had no virbr in the list. */
    static const char *const tries[] = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};
    const struct nic *chosen[NIC_MAX];
    struct nics nics;
    char taken[256], made[256] = "";
    int n = 0;
    if (!nics_read(v, r, &nics))
        return;
    const char *value = nccl_ifname(v);
    if (value)
        n = nccl_choose(&nics, value, chosen);
    for (size_t i = 0; !value && n == 0 && i < sizeof(tries) / sizeof(*tries); i++)
        n = nccl_choose(&nics, tries[i], chosen);
    list_chosen(chosen, n, taken, sizeof(taken));
    for (int i = 0; i < n; i++) {
        if (chosen[i]->made)
            check_append(made, sizeof(made), ", ", "%s", chosen[i]->name);
    }
    result_observed(r, "%s", taken);
    result_expected(r, "no bridge, tunnel or veth pair among them");
    if (n == 0)
        result_skip(r, "no interface that NCCL could take: see nccl-ifname-match and nic-up");
    else if (*made && job_spans_machines(v->setting) == 0)
        result_info(r, "NCCL takes %s (%s is virtual): enough for ranks of one machine", taken,
                    made);
    else if (*made)
        result_warn(r, "NCCL takes %s, of which %s is virtual", taken, made);
    else
        result_pass(r, "NCCL takes %s", taken);
}

#define NCCL_ENV                                                                                   \
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"

static const struct check rows[] = {
    {.id = "nccl-ifname-match",
     .code = "HVD6801",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"network"},
     .run = check_nccl_match,
     .title = "NCCL_SOCKET_IFNAME matches",
     .why = "NCCL stops at start with \"no socket interface found\" when no interface has a name "
            "that NCCL_SOCKET_IFNAME matches.",
     .fix = {"docker run -e NCCL_SOCKET_IFNAME==eth0 ...",
             "env: [{name: NCCL_SOCKET_IFNAME, value: \"=eth0\"}]", "unset NCCL_SOCKET_IFNAME"},
     .action = ACTION_ENVIRONMENT,
     .explain =
         "\"eth\" takes every name that begins with eth, \"=eth0\" only eth0, \"^docker,lo\" "
         "all but those. Only interfaces that are up and have an address count. Names are "
         "often others in a container (eth0) than on its host (ens5, bond0). A value of "
         "one character is ignored by NCCL.",
     .refs = {NCCL_ENV}},
    {.id = "nccl-ifname-virtual",
     .code = "HVD6802",
     .group = GROUP_NCCL,
     .level = 1,
     .profiles = PROFILE_GPU,
     .probes = {"network"},
     .run = check_nccl_virtual,
     .title = "NCCL does not use virtual interfaces",
     .why = "NCCL uses all interfaces that match and announces the address of the first. Other "
            "machines cannot reach a bridge or a tunnel of this one: \"Connection refused\", "
            "\"No route to host\", or a hang.",
     .fix = {"docker run -e NCCL_SOCKET_IFNAME=eth0 ...",
             "env: [{name: NCCL_SOCKET_IFNAME, value: eth0}]",
             "export NCCL_SOCKET_IFNAME=^docker,lo,virbr,veth,br-,cni,flannel,cali"},
     .action = ACTION_ENVIRONMENT,
     .explain = "Without NCCL_SOCKET_IFNAME, NCCL takes names that begin with ib; if there are "
                "none, all but docker*, lo* and virbr* (older versions: all but docker* and lo*). "
                "Bridges of Kubernetes and podman (cni0, flannel.1, br-...), veth ends on a host "
                "and VPNs are not in that list.",
     .refs = {NCCL_ENV}},
};

const struct check_table checks_nccl_ifname = {rows, sizeof(rows) / sizeof(*rows)};
