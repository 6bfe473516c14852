/* SPDX-License-Identifier: Apache-2.0
 *
 * nic: see nic.h.
 */
#include "diagnostics/checks/nic.h"

#include <net/if.h>
#include <stdio.h>
#include <string.h>

/* Prefixes of names that container runtimes, CNI plugins, hypervisors and VPNs give to their
 * virtual interfaces. */
static const char *const made_names[] = {
    "docker", "veth",      "virbr",  "br-",       "cni",   "flannel", "cali",    "cilium", "lxc",
    "lxdbr",  "kube-",     "nodelo", "podman",    "tun",   "tap",     "vxlan",   "geneve", "dummy",
    "ifb",    "wg",        "vnet",   "tailscale", "zt",    "ip6tnl",  "sit",     "gre",    "erspan",
    "tunl",   "antrea-gw", "weave",  "ovs-",      "genev", "vmnet",   "nerdctl", "bridge",
};

/* Drivers (ethtool) of interfaces that are never a path to another machine by themselves. */
static const char *const made_drivers[] = {"bridge", "dummy", "ifb", "tun", "vxlan", "geneve"};

static bool is_made(const char *name, const char *driver)
{
    for (size_t i = 0; i < sizeof(made_names) / sizeof(*made_names); i++) {
        if (strncmp(name, made_names[i], strlen(made_names[i])) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(made_drivers) / sizeof(*made_drivers); i++) {
        if (strcmp(driver, made_drivers[i]) == 0)
            return true;
    }
    return false;
}

static void add_address(struct nics *nics, const char *name, const char *ip, bool counts,
                        int family)
{
    for (int i = 0; i < nics->n; i++) {
        struct nic *n = &nics->list[i];
        if (strcmp(n->name, name) != 0)
            continue;
        if (!n->has_addr || (counts && !n->v4 && !n->v6))
            snprintf(n->ip, sizeof(n->ip), "%s", ip);
        n->has_addr = true;
        n->v4 = n->v4 || (counts && family == 4);
        n->v6 = n->v6 || (counts && family == 6);
    }
}

bool nics_read(const struct view *v, struct result *r, struct nics *ret)
{
    const struct answer *a = machine_answer(v->machine, "network");
    memset(ret, 0, sizeof(*ret));
    if (!result_needs(r, a, "the list of network interfaces"))
        return false;
    int n = answer_count(a, "if");
    for (int i = 0; i < n && ret->n < NIC_MAX; i++) {
        unsigned flags = (unsigned)answer_int_at(a, "if", i, "flags", 0);
        struct nic *nic = &ret->list[ret->n++];
        *nic = (struct nic){
            .name = answer_str_at(a, "if", i, "name", "?"),
            .index = i,
            .type = (int)answer_int_at(a, "if", i, "type", 0),
            .mtu = (int)answer_int_at(a, "if", i, "mtu", 0),
            .speed = (int)answer_int_at(a, "if", i, "speed", 0),
            .up = flags & IFF_UP,
            .running = flags & IFF_RUNNING,
            .loopback = flags & IFF_LOOPBACK,
        };
        nic->made = is_made(nic->name, answer_str_at(a, "if", i, "driver", ""));
    }
    n = answer_count(a, "addr");
    for (int i = 0; i < n; i++)
        add_address(ret, answer_str_at(a, "addr", i, "if", ""),
                    answer_str_at(a, "addr", i, "ip", ""),
                    strcmp(answer_str_at(a, "addr", i, "scope", ""), "global") == 0,
                    (int)answer_int_at(a, "addr", i, "family", 0));
    return true;
}

bool nic_usable(const struct nic *n)
{
    return n->up && n->running && !n->loopback && (n->v4 || n->v6);
}

bool nic_has_address(const struct nic *n)
{
    return n->up && !n->loopback && n->has_addr;
}

bool nics_own(const struct view *v, const char *ip)
{
    const struct answer *a = machine_answer(v->machine, "network");
    int n = answer_count(a, "addr");
    for (int i = 0; i < n; i++) {
        if (strcmp(answer_str_at(a, "addr", i, "ip", ""), ip) == 0)
            return true;
    }
    return false;
}

int nics_names(const struct nics *nics, bool (*pass)(const struct nic *), char *dst, size_t size)
{
    int n = 0;
    *dst = '\0';
    for (int i = 0; i < nics->n; i++) {
        if (pass && !pass(&nics->list[i]))
            continue;
        check_append(dst, size, ", ", "%s", nics->list[i].name);
        n++;
    }
    return n;
}

int job_spans_machines(const struct setting *s)
{
    if (s->ranks <= 0)
        return -1;
    return s->ranks > (s->local_ranks > 0 ? s->local_ranks : 1);
}

bool each_word(const char *list, bool (*each)(const char *word, void *arg), void *arg)
{
    char word[128];
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, ",");
        if (len && len < sizeof(word)) {
            memcpy(word, p, len);
            word[len] = '\0';
            if (each(word, arg))
                return true;
        }
        p += len + (p[len] == ',');
    }
    return false;
}

struct nccl_name {
    const char *name;
    bool exact;
};

static bool nccl_word(const char *word, void *arg)
{
    const struct nccl_name *n = arg;
    size_t len = strcspn(word, ":"); /* "eth0:1", "mlx5_0:1": a port */
    return len && strncmp(n->name, word, len) == 0 && (!n->exact || n->name[len] == '\0');
}

bool nccl_takes(const char *spec, const char *name)
{
    bool exclude = *spec == '^';
    spec += exclude;
    struct nccl_name n = {.name = name, .exact = *spec == '='};
    return each_word(spec + n.exact, nccl_word, &n) != exclude;
}
