/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts: where ranks run: -H lists, host files, and how many ranks each host gets. Used by hvdrun
 * at its start and for the output of a discovery script. Pure, except for reading the file and
 * asking for this host's name.
 */
#ifndef HVD_AGENT_HOSTS_H
#define HVD_AGENT_HOSTS_H

#include <stdbool.h>

#include "core/base/err.h"

#define HOST_RANKS_MAX 512 /* ranks of one host: SHM_MAX_SEATS, the limit of a shared segment */

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

/* Parses "h1:2,h2,[fe80::1]:4". A host named twice becomes one host with the sum of the slots, and
 * so do all names of this machine. Replaces *hosts; unchanged on failure. */
int hosts_parse(struct hosts *hosts, const char *text, struct err *err);

/* Adds one entry of the form that hosts_parse() reads, [text, end), with slots slots if the entry
 * names none. Unchanged on failure. */
int hosts_add(struct hosts *hosts, const char *text, const char *end, int slots, struct err *err);

/* Reads lines "host slots=N", "host:N" or "host"; # starts a comment. err has file and line. */
int hosts_read(struct hosts *hosts, const char *path, struct err *err);

/* Fills the hosts in order with np ranks (0: one per slot), at most HOST_RANKS_MAX each, and drops
 * hosts without ranks. Without hosts: this machine, with np slots. */
int hosts_assign(struct hosts *hosts, int np, struct err *err);

/* Like hosts_assign(), for an elastic job: hosts without ranks stay, for joiners. Without hosts:
 * this machine, with max slots. */
int hosts_assign_elastic(struct hosts *hosts, int np, int max, struct err *err);

int hosts_ranks(const struct hosts *hosts);
void hosts_fini(struct hosts *hosts);

/* Does name mean this machine: localhost, 127.0.0.1, ::1, or the machine's own host name? */
bool host_is_local(const char *name);

#endif
