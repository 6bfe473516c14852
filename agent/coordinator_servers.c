/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_servers: see coordinator_servers.h.
 */
#include "agent/coordinator_servers.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/sock.h"
#include "core/base/words.h"

#define PORT_MS 3000 /* time to open a port of an hvdrun that was killed */

int coordinator_servers_open_unix(struct coordinator_servers *s, struct err *err)
{
    struct server_config config = {.loop = &s->core->loop,
                                   .token = s->token,
                                   .handle = service_handle,
                                   .arg = &s->core->service,
                                   .unix_path = s->unix_path};
    return server_open(&s->unix_server, &config, err);
}

/* Finds this machine's address that routes to a host. Returns the index of this address in
 * addresses, to which it is added if it is new, or -errno. */
static int address_toward(struct coordinator_servers *s, const char *host, struct err *err)
{
    struct sock_addr found[SOCK_MAX_ADDRS];
    size_t n = 0;
    char text[SOCK_TEXT_MAX], bare[SOCK_TEXT_MAX];
    int rc = sock_candidates(env_get("IFACE"), strchr(host, '@') ? strchr(host, '@') + 1 : host,
                             found, &n, err);
    if (rc < 0)
        return err_prefix(err, "where to listen for host %s", host);
    found[0].port = 0;
    sock_text(&found[0], text);
    /* Removes the brackets of an IPv6 address. */
    snprintf(bare, sizeof(bare), "%s", text + (text[0] == '['));
    bare[strcspn(bare, "]")] = '\0';
    for (int i = 0; i < s->ntcp; i++)
        if (strcmp(s->addresses[i], bare) == 0)
            return i;
    if (s->ntcp == COORDINATOR_SERVERS)
        return err_set(err, ENOSPC,
                       "the hosts are reached over more than %d addresses: set "
                       "HVD_IFACE",
                       COORDINATOR_SERVERS);
    snprintf(s->addresses[s->ntcp], sizeof(s->addresses[0]), "%s", bare);
    return s->ntcp++;
}

static int open_tcp(struct coordinator_servers *s, const struct authority *authority, int i,
                    int port, struct err *err)
{
    struct server_config config = {.loop = &s->core->loop,
                                   .token = s->token,
                                   .handle = service_handle,
                                   .arg = &s->core->service,
                                   .address = s->addresses[i],
                                   .port = port,
                                   .cert_pem = authority->cert_pem,
                                   .key_pem = authority->key_pem};
    if (authority_copy(&s->authorities[i], authority) < 0)
        return err_set(err, ENOMEM, "no memory for a certificate");
    int rc = server_open(&s->tcp[i], &config, err);
    if (rc == 0)
        coordinator_say(s->core, 1, "listening for agents on %s port %d", s->addresses[i],
                        server_port(s->tcp[i]));
    else
        authority_fini(&s->authorities[i]);
    return rc;
}

/* Stores the URL at which an agent reaches this process: the Unix socket here, TLS from other
 * hosts. */
static int set_url(struct coordinator_servers *s, struct roster_agent *a, int address,
                   struct err *err)
{
    char url[128] = "http://hvdrun";
    if (address >= 0) {
        const char *ip = s->addresses[address];
        bool v6 = strchr(ip, ':') != NULL;
        snprintf(url, sizeof(url), "https://%s%s%s:%d", v6 ? "[" : "", ip, v6 ? "]" : "",
                 server_port(s->tcp[address]));
    }
    return words_set(&a->self, url) < 0 ? err_set(err, ENOMEM, "no memory for an address") : 0;
}

/* With remote hosts: makes a CA for this job, and a server on each address that routes to one of
 * them. */
static int open_all(struct coordinator_servers *s, int *addresses, struct err *err)
{
    struct authority authority = {0};
    const char *list[COORDINATOR_SERVERS];
    int rc = 0;
    for (int i = 0; i < s->core->roster.agents.n && rc == 0; i++) {
        const struct host *host = &s->core->job->hosts.list[i];
        addresses[i] = host->local ? -1 : address_toward(s, host->name, err);
        rc = !host->local && addresses[i] < 0 ? addresses[i] : 0;
    }
    for (int i = 0; i < s->ntcp; i++)
        list[i] = s->addresses[i];
    int wanted = s->ntcp;
    s->ntcp = 0;
    if (rc == 0 && wanted > 0)
        rc = authority_create(&authority, s->core->roster.job, list, wanted, err);
    for (; s->ntcp < wanted && rc == 0; s->ntcp += rc == 0)
        rc = open_tcp(s, &authority, s->ntcp, 0, err);
    for (int i = 0; i < s->core->roster.agents.n && rc == 0; i++)
        rc = set_url(s, &s->core->roster.agents.list[i], addresses[i], err);
    s->ca_pem = TAKE(authority.ca_pem);
    authority_fini(&authority);
    return rc;
}

/* Returns the index of a server that a host can reach. Opens one with its own CA if there is none.
 */
static int reach_address(struct coordinator_servers *s, const char *host, struct err *err)
{
    int known = s->ntcp, address = address_toward(s, host, err);
    struct authority authority = {0};
    if (address < known)
        return address;
    const char *list[] = {s->addresses[address]};
    int rc = authority_create(&authority, s->core->roster.job, list, 1, err);
    if (rc == 0)
        rc = open_tcp(s, &authority, address, 0, err);
    if (rc == 0)
        s->cas[address] = TAKE(authority.ca_pem);
    else
        s->ntcp = known;
    authority_fini(&authority);
    return rc < 0 ? rc : address;
}

int coordinator_servers_reach(struct coordinator_servers *s, int agent, char **ret_ca,
                              struct err *err)
{
    const struct host *host = &s->core->job->hosts.list[agent];
    int address = host->local ? -1 : reach_address(s, host->name, err);
    if (!host->local && address < 0)
        return address;
    *ret_ca = address < 0 ? NULL : s->cas[address];
    return set_url(s, &s->core->roster.agents.list[agent], address, err);
}

int coordinator_servers_open_tcp(struct coordinator_servers *s, struct err *err)
{
    int *addresses = calloc((size_t)s->core->roster.agents.n + 1, sizeof(int));
    int rc = addresses ? open_all(s, addresses, err) : err_set(err, ENOMEM, "no memory");
    free(addresses);
    return rc;
}

/* Retries while the port is in use: a short-lived connection of another process may have it as its
 * local port. */
static int open_again(struct coordinator_servers *s, const struct saved_job_server *server,
                      struct err *err)
{
    const struct timespec nap = {.tv_nsec = 50000000};
    uint64_t until = deadline_in_ms(PORT_MS);
    for (;;) {
        int rc = open_tcp(s, &server->authority, s->ntcp, server->port, err);
        if (rc != -EADDRINUSE || deadline_passed(until))
            return rc;
        nanosleep(&nap, NULL);
    }
}

/* Opens the TCP servers at which remote agents look for hvdrun, then the Unix socket: if a TCP
 * server fails, the socket is untouched. */
int coordinator_servers_reopen(struct coordinator_servers *s, const struct saved_job *k,
                               struct err *err)
{
    int rc = 0;
    for (; s->ntcp < k->nservers && rc == 0; s->ntcp += rc == 0) {
        const struct saved_job_server *server = &k->servers[s->ntcp];
        memcpy(s->addresses[s->ntcp], server->address, sizeof(server->address));
        rc = open_again(s, server, err);
        if (rc == 0)
            s->cas[s->ntcp] = strdup(server->authority.ca_pem);
    }
    if (rc == -EADDRNOTAVAIL)
        return err_set(err, EADDRNOTAVAIL,
                       "this machine has no address %s, at which the job's agents look for hvdrun: "
                       "attach where the first hvdrun ran (host %.100s)",
                       s->addresses[s->ntcp], k->host);
    if (rc < 0)
        return rc;
    if (s->ntcp > 0)
        s->ca_pem = strdup(k->servers[0].authority.ca_pem);
    unlink(s->unix_path); /* the directory is locked, so nobody listens there */
    return coordinator_servers_open_unix(s, err);
}

void coordinator_servers_wake(struct coordinator_servers *s)
{
    server_wake(s->unix_server);
    for (int i = 0; i < s->ntcp; i++)
        server_wake(s->tcp[i]);
}

void coordinator_servers_close(struct coordinator_servers *s)
{
    server_close(s->unix_server);
    for (int i = 0; i < s->ntcp; i++) {
        server_close(s->tcp[i]);
        free(s->cas[i]);
        authority_fini(&s->authorities[i]);
    }
    free(s->ca_pem);
    sodium_memzero(s->token, sizeof(s->token));
}
