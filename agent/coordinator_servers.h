/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_servers: where agents reach hvdrun: a Unix socket for agents of this machine, and TLS
 * servers on each address that routes to another host. On hvdrun's loop, one thread.
 */
#ifndef HVD_AGENT_COORDINATOR_SERVERS_H
#define HVD_AGENT_COORDINATOR_SERVERS_H

#include "agent/coordinator_core.h"
#include "agent/saved_job.h"
#include "core/member/authority.h"
#include "core/member/server.h"

#define COORDINATOR_SERVERS 8

struct coordinator_servers {
    struct coordinator_core *core;
    char token[65]; /* set by the owner, as unix_path is, before a server opens */
    char unix_path[300];
    struct server *unix_server;
    struct server *tcp[COORDINATOR_SERVERS];
    char addresses[COORDINATOR_SERVERS][64];
    int ntcp;
    struct authority authorities[COORDINATOR_SERVERS];
    char *ca_pem;                   /* CA of the servers opened at the start; NULL: none */
    char *cas[COORDINATOR_SERVERS]; /* CAs of servers opened later; NULL: ca_pem */
};

int coordinator_servers_open_unix(struct coordinator_servers *s, struct err *err);

/* With remote hosts: makes a CA for this job, and a server on each address that routes to one of
 * them. Sets the URL of each agent. */
int coordinator_servers_open_tcp(struct coordinator_servers *s, struct err *err);

/* Opens the servers of an hvdrun that was killed, on the same ports, then the Unix socket. */
int coordinator_servers_reopen(struct coordinator_servers *s, const struct saved_job *saved,
                               struct err *err);

/* Sets the URL at which a new agent reaches this process. Opens another server if none listens on
 * the address that routes to the agent's host. *ret_ca: the CA of that server, lent; NULL: the
 * job's. */
int coordinator_servers_reach(struct coordinator_servers *s, int agent, char **ret_ca,
                              struct err *err);

/* Lets waiting requests look at the roster again. */
void coordinator_servers_wake(struct coordinator_servers *s);
void coordinator_servers_close(struct coordinator_servers *s);

#endif
