/* SPDX-License-Identifier: Apache-2.0
 *
 * nic: the network interfaces of a machine as the checks see them: what the probe "network" found,
 * and whether a name is that of a virtual interface (bridge, tunnel, veth pair).
 *
 * Used by the checks of interfaces, network, infiniband and nccl_ifname. Plain data, no I/O but
 * machine.h's.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_NIC_H
#define HVD_DIAGNOSTICS_CHECKS_NIC_H

#include <stdbool.h>
#include <stddef.h>

#include "diagnostics/check.h"

#define NIC_MAX 64

struct nic {
    const char *name; /* points into the answer */
    int index;        /* in the answer's list "if" */
    int type, mtu;    /* type: ARPHRD_*; mtu in bytes */
    int speed;        /* Mb/s, 0: not known */
    bool up, running, loopback;
    bool made;     /* virtual, and not the eth0 of a container */
    bool v4, v6;   /* has an address that other machines may reach; link-local ones do not count */
    bool has_addr; /* any address, link-local too */
    char ip[64];   /* the first address that other machines may reach, else any */
};

struct nics {
    struct nic list[NIC_MAX];
    int n;
};

/* If the probe has no answer, returns false and sets r to a warning or a skip. */
bool nics_read(const struct view *v, struct result *r, struct nics *ret);

/* Returns true if other machines can reach the interface: up, running, not loopback, an address
 * that is not link-local. */
bool nic_usable(const struct nic *n);

/* Returns true if the interface is up, not loopback, and has any address: what NCCL and gloo would
 * use. */
bool nic_has_address(const struct nic *n);

/* Returns whether the machine has this address; loopback addresses count. */
bool nics_own(const struct view *v, const char *ip);

/* Writes "eth0, eth1" of the interfaces for which pass is true (NULL: all) to dst; returns how
 * many there are. */
int nics_names(const struct nics *nics, bool (*pass)(const struct nic *), char *dst, size_t size);

/* Calls each for every word of a comma-separated list. Stops and returns true when it returns
 * true. */
bool each_word(const char *list, bool (*each)(const char *word, void *arg), void *arg);

/* Does NCCL's list spec (NCCL_SOCKET_IFNAME, NCCL_IB_HCA) select name? ^ excludes, = compares
 * whole names, otherwise a word is a prefix. */
bool nccl_takes(const char *spec, const char *name);

/* Does the job have ranks on other machines? 1 yes, 0 no, -1 unknown. */
int job_spans_machines(const struct setting *s);

#endif
