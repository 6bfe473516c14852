/* SPDX-License-Identifier: Apache-2.0
 *
 * nic: the network interfaces of a machine as the checks see them: what the probe "network" said,
 * and whether a name is one that software makes (bridges, tunnels, pairs).
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
    const char *name; /* the answer's */
    int index;        /* in the answer's list "if" */
    int type, mtu;    /* ARPHRD_* */
    int speed;        /* Mb/s, 0: not known */
    bool up, running, loopback;
    bool made;     /* by software, and not what a container calls its own eth0 */
    bool v4, v6;   /* has an address that others may reach; link-local ones do not count */
    bool has_addr; /* any address, link-local too */
    char ip[64];   /* the first of the addresses that count, else of any */
};

struct nics {
    struct nic list[NIC_MAX];
    int n;
};

/* False when the probe has not answered: r is set then. */
bool nics_read(const struct view *v, struct result *r, struct nics *ret);

/* Others can reach it: up, running, not loopback, an address that counts. */
bool nic_usable(const struct nic *n);

/* Up, not loopback, any address: what NCCL and gloo would take. */
bool nic_has_address(const struct nic *n);

/* The machine has this address, loopback too. */
bool nics_own(const struct view *v, const char *ip);

/* "eth0, eth1" of those that pass (NULL: all) into dst; returns how many there are. */
int nics_names(const struct nics *nics, bool (*pass)(const struct nic *), char *dst, size_t size);

/* Calls each for the words of a comma list; stops when it returns true and returns that. */
bool each_word(const char *list, bool (*each)(const char *word, void *arg), void *arg);

/* NCCL's lists of names (NCCL_SOCKET_IFNAME, NCCL_IB_HCA): ^ excludes, = compares whole names, else
 * names begin with the word. */
bool nccl_takes(const char *spec, const char *name);

/* More machines than this one take part: 1 yes, 0 no, -1 not known. */
int job_spans_machines(const struct setting *s);

#endif
