/* SPDX-License-Identifier: Apache-2.0
 *
 * coordinator_open: what hvdrun sets up before agents start: key, token, roster, servers; and how
 * it closes them. See coordinator.h.
 */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/coordinator.h"
#include "agent/jobs.h"
#include "agent/reap.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/env.h"
#include "core/base/fd.h"
#include "core/base/sock.h"
#include "core/base/words.h"
#include "core/member/authority.h"

#define LOST_FIXED_S   5 /* seconds that ranks outlive hvdrun */
#define LOST_ELASTIC_S 60
#define LOST_MAX_S     86400

/* Makes the private directory for the socket, the token and the job's file, and claims the job's
 * name. The name is taken while *ret_lock is open, and later while the socket accepts connections.
 */
static int make_dir(struct coordinator *c, int *ret_lock, struct err *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct job_entry entry = {.pid = getpid(),
                              .started = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000};
    const char *base = jobs_base();
    if (!base && getenv("HVD_RUN_DIR"))
        return err_set(err, EROFS,
                       "HVD_RUN_DIR %.200s: want a directory that can be written to, of a path of "
                       "60 bytes at most",
                       getenv("HVD_RUN_DIR"));
    if (!base)
        return err_set(err, EROFS,
                       "neither XDG_RUNTIME_DIR, TMPDIR, /tmp nor /dev/shm can be "
                       "written to: a socket needs a place");
    int rc = jobs_claim(&entry, base, c->job->name, c->job->argv, ret_lock, err);
    if (rc < 0)
        return rc;
    char path[sizeof(c->dir)];
    snprintf(path, sizeof(path), "%s/hvdrun-XXXXXX", base);
    if (!mkdtemp(path)) /* mode 0700 */
        return err_sys(err, errno, "a private directory in %s", base);
    memcpy(c->dir, path, sizeof(path));
    memcpy(entry.dir, path, sizeof(path));
    jobs_path(c->unix_path, sizeof(c->unix_path), c->dir, "sock");
    size_t n = 0;
    for (char **w = c->job->argv; *w && n < sizeof(entry.command); w++)
        n += (size_t)snprintf(entry.command + n, sizeof(entry.command) - n, "%s%s", n ? " " : "",
                              *w);
    free(c->job->name);
    c->job->name = strdup(entry.name);
    return c->job->name ? jobs_publish(&entry, err) : err_set(err, ENOMEM, "no memory");
}

/* Writes the token beside the socket, for curl and hvd-doctor of this user. */
static int write_token(const struct coordinator *c, struct err *err)
{
    char path[sizeof(c->dir) + 16];
    snprintf(path, sizeof(path), "%s/token", c->dir);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || fd_write_full(fd, c->token, strlen(c->token), deadline_in_ms(1000)) < 0)
        return err_sys(err, errno, "%s", path);
    return 0;
}

static int make_roster(struct coordinator *c, struct err *err)
{
    int n = c->job->hosts.n;
    uint8_t key[MEMBER_KEY_SIZE], nonce[8];
    char hex[2 * sizeof(nonce) + 1];
    struct roster_host *hosts = calloc((size_t)n, sizeof(*hosts));
    char(*uids)[64] = calloc((size_t)n, sizeof(*uids));
    int rc = hosts && uids ? 0 : err_set(err, ENOMEM, "no memory for %d hosts", n);
    randombytes_buf(key, sizeof(key));
    randombytes_buf(nonce, sizeof(nonce));
    sodium_bin2hex(hex, sizeof(hex), nonce, sizeof(nonce));
    for (int i = 0; i < n && rc == 0; i++) {
        snprintf(uids[i], sizeof(uids[i]), "agent-%d-%s", i, hex);
        const struct host *host = &c->job->hosts.list[i];
        hosts[i] = (struct roster_host){uids[i], host->name, host->nranks,
                                        c->job->elastic ? host->slots : 0};
    }
    if (rc == 0)
        rc = roster_init(&c->roster, c->job->name, key, hosts, n, err);
    if (rc == 0 && c->job->elastic)
        rc = roster_make_elastic(
            &c->roster,
            &(struct roster_elastic){.min = c->job->min_np,
                                     .max = c->job->max_np,
                                     .reset_limit = c->job->reset_limit,
                                     .start_limit = (uint64_t)c->job->start_timeout * CLOCK_S,
                                     .backoff_first = (uint64_t)c->job->cooldown_min * CLOCK_S,
                                     .backoff_max = (uint64_t)c->job->cooldown_max * CLOCK_S},
            err);
    sodium_memzero(key, sizeof(key));
    free(hosts);
    free(uids);
    return rc;
}

int coordinator_open_unix(struct coordinator *c, struct err *err)
{
    struct server_config config = {.loop = &c->loop,
                                   .token = c->token,
                                   .handle = service_handle,
                                   .arg = &c->service,
                                   .unix_path = c->unix_path};
    return server_open(&c->unix_server, &config, err);
}

/* Finds this machine's address that routes to a host. Returns its index in tcp_addresses. */
static int address_toward(struct coordinator *c, const char *host, struct err *err)
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
    for (int i = 0; i < c->ntcp; i++)
        if (strcmp(c->tcp_addresses[i], bare) == 0)
            return i;
    if (c->ntcp == COORDINATOR_SERVERS)
        return err_set(err, ENOSPC,
                       "the hosts are reached over more than %d addresses: set "
                       "HVD_IFACE",
                       COORDINATOR_SERVERS);
    snprintf(c->tcp_addresses[c->ntcp], sizeof(c->tcp_addresses[0]), "%s", bare);
    return c->ntcp++;
}

int coordinator_open_tcp(struct coordinator *c, const struct authority *authority, int i, int port,
                         struct err *err)
{
    struct server_config config = {.loop = &c->loop,
                                   .token = c->token,
                                   .handle = service_handle,
                                   .arg = &c->service,
                                   .address = c->tcp_addresses[i],
                                   .port = port,
                                   .cert_pem = authority->cert_pem,
                                   .key_pem = authority->key_pem};
    if (authority_copy(&c->tcp_authority[i], authority) < 0)
        return err_set(err, ENOMEM, "no memory for a certificate");
    int rc = server_open(&c->tcp_servers[i], &config, err);
    if (rc == 0)
        coordinator_say(c, 1, "listening for agents on %s port %d", c->tcp_addresses[i],
                        server_port(c->tcp_servers[i]));
    else
        authority_fini(&c->tcp_authority[i]);
    return rc;
}

/* Stores the URL at which an agent reaches this process: the Unix socket here, TLS from other
 * hosts. */
static int set_url(struct coordinator *c, struct roster_agent *a, int address, struct err *err)
{
    char url[128] = "http://hvdrun";
    if (address >= 0) {
        const char *ip = c->tcp_addresses[address];
        bool v6 = strchr(ip, ':') != NULL;
        snprintf(url, sizeof(url), "https://%s%s%s:%d", v6 ? "[" : "", ip, v6 ? "]" : "",
                 server_port(c->tcp_servers[address]));
    }
    return words_set(&a->self, url) < 0 ? err_set(err, ENOMEM, "no memory for an address") : 0;
}

/* With remote hosts: makes a CA for this job, and a server on each address that routes to one of
 * them. */
static int open_servers(struct coordinator *c, int *addresses, struct err *err)
{
    struct authority authority = {0};
    const char *list[COORDINATOR_SERVERS];
    int rc = 0;
    for (int i = 0; i < c->roster.agents.n && rc == 0; i++) {
        const struct host *host = &c->job->hosts.list[i];
        addresses[i] = host->local ? -1 : address_toward(c, host->name, err);
        rc = !host->local && addresses[i] < 0 ? addresses[i] : 0;
    }
    for (int i = 0; i < c->ntcp; i++)
        list[i] = c->tcp_addresses[i];
    int wanted = c->ntcp;
    c->ntcp = 0;
    if (rc == 0 && wanted > 0)
        rc = authority_create(&authority, c->roster.job, list, wanted, err);
    for (; c->ntcp < wanted && rc == 0; c->ntcp += rc == 0)
        rc = coordinator_open_tcp(c, &authority, c->ntcp, 0, err);
    for (int i = 0; i < c->roster.agents.n && rc == 0; i++)
        rc = set_url(c, &c->roster.agents.list[i], addresses[i], err);
    c->ca_pem = TAKE(authority.ca_pem);
    authority_fini(&authority);
    return rc;
}

/* Returns the index of a server that a host can reach. Opens one with its own CA if there is none.
 */
static int reach_address(struct coordinator *c, const char *host, struct err *err)
{
    int known = c->ntcp, address = address_toward(c, host, err);
    struct authority authority = {0};
    if (address < known)
        return address;
    const char *list[] = {c->tcp_addresses[address]};
    int rc = authority_create(&authority, c->roster.job, list, 1, err);
    if (rc == 0)
        rc = coordinator_open_tcp(c, &authority, address, 0, err);
    if (rc == 0)
        c->tcp_ca[address] = TAKE(authority.ca_pem);
    else
        c->ntcp = known;
    authority_fini(&authority);
    return rc < 0 ? rc : address;
}

int coordinator_reach(struct coordinator *c, int agent, struct err *err)
{
    const struct host *host = &c->job->hosts.list[agent];
    int address = host->local ? -1 : reach_address(c, host->name, err);
    if (!host->local && address < 0)
        return address;
    c->agents[agent].ca = address < 0 ? NULL : c->tcp_ca[address];
    return set_url(c, &c->roster.agents.list[agent], address, err);
}

int coordinator_read_settings(struct coordinator *c, struct err *err)
{
    int64_t seconds = 0;
    int rc = env_int("COORDINATOR_LOST_SECONDS", c->job->elastic ? LOST_ELASTIC_S : LOST_FIXED_S, 1,
                     LOST_MAX_S, &seconds, err);
    c->lost_seconds = (int)seconds;
    return rc;
}

int coordinator_open(struct coordinator *c, struct err *err)
{
    uint8_t token[32];
    randombytes_buf(token, sizeof(token));
    sodium_bin2hex(c->token, sizeof(c->token), token, sizeof(token));
    sodium_memzero(token, sizeof(token));
    auto_close int lock = -1;
    int rc = coordinator_read_settings(c, err);
    if (rc == 0)
        rc = make_dir(c, &lock, err);
    if (rc == 0)
        rc = jobs_lock(c->dir, &c->dir_lock, err);
    if (rc == 0)
        rc = make_roster(c, err);
    if (rc == 0)
        rc = write_token(c, err);
    if (rc == 0)
        rc = coordinator_open_unix(c, err);
    int *addresses = rc == 0 ? calloc((size_t)c->roster.agents.n, sizeof(int)) : NULL;
    if (rc == 0)
        rc = addresses ? open_servers(c, addresses, err) : err_set(err, ENOMEM, "no memory");
    free(addresses);
    c->first_hosts = c->roster.agents.n;
    if (rc == 0)
        coordinator_save_job(c);
    return rc;
}

void coordinator_close(struct coordinator *c)
{
    discovery_stop(&c->discovery);
    for (int i = 0; c->agents && i < c->roster.agents.n; i++) {
        launch_kill(&c->agents[i], SIGKILL);
        launch_fini(&c->agents[i], &c->loop);
    }
    /* Ranks of a killed agent are children of this process now. */
    reap_rest(500);
    server_close(c->unix_server);
    for (int i = 0; i < c->ntcp; i++) {
        server_close(c->tcp_servers[i]);
        free(c->tcp_ca[i]);
        authority_fini(&c->tcp_authority[i]);
    }
    if (c->dir[0])
        jobs_remove(c->dir);
    if (c->dir_lock >= 0)
        close(c->dir_lock);
    loop_timer_stop(&c->loop, &c->tick);
    loop_timer_stop(&c->loop, &c->news);
    loop_fd_stop(&c->loop, &c->signals);
    free(c->agents);
    free(c->ca_pem);
    sodium_memzero(c->token, sizeof(c->token));
    roster_fini(&c->roster);
}
