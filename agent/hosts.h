/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts: where ranks run: -H lists, host files, and how many ranks each host gets. Used by hvdrun
 * at its start, and for what a discovery script names; pure but for reading the file and asking for
 * this host's name.
 */
#ifndef HVD_AGENT_HOSTS_H
#define HVD_AGENT_HOSTS_H

#include <stdbool.h>

#include "core/base/err.h"

#define HOST_RANKS_MAX 512 /* SHM_MAX_SEATS: of one shared segment */

struct host {
    char name[256]; /* as the user wrote it, without brackets */
    int slots;
    int nranks;
    bool local; /* this machine: no ssh */
};

struct hosts {
    struct host *list;
    int n;
};

/* "h1:2,h2,[fe80::1]:4". A host that is named twice, and every name of this machine, is one host
 * with the sum of the slots. Replaces what is in hosts; untouched on failure. */
int hosts_parse(struct hosts *hosts, const char *text, struct err *err);

/* One of them, [text, end); slots where it names none. Untouched on failure. */
int hosts_add(struct hosts *hosts, const char *text, const char *end, int slots, struct err *err);

/* Lines "host slots=N", "host:N" or "host"; # starts a comment. err has file and line. */
int hosts_read(struct hosts *hosts, const char *path, struct err *err);

/* Fills the hosts in order with np ranks (0: one a slot), at most HOST_RANKS_MAX each, and drops
 * those that get none. Without any host: this machine, with as many slots as are asked for. */
int hosts_assign(struct hosts *hosts, int np, struct err *err);

/* The same for a job that may grow: hosts that get none stay, for ranks that come later; without
 * any host this machine has max slots. */
int hosts_assign_elastic(struct hosts *hosts, int np, int max, struct err *err);

int hosts_ranks(const struct hosts *hosts);
void hosts_fini(struct hosts *hosts);

/* localhost, a loopback address, or this machine's own name. */
bool host_is_local(const char *name);

#endif
