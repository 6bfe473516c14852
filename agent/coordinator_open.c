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
        return err_set(
            err, EROFS,
            "HVD_RUN_DIR %.200s: want a writable directory with a path of at most 60 bytes",
            getenv("HVD_RUN_DIR"));
    if (!base)
        return err_set(
            err, EROFS,
            "none of XDG_RUNTIME_DIR, TMPDIR, /tmp and /dev/shm can hold hvdrun's socket: set "
            "HVD_RUN_DIR to a writable directory");
    int rc = jobs_claim(&entry, base, c->core.job->name, c->core.job->argv, ret_lock, err);
    if (rc < 0)
        return rc;
    char path[sizeof(c->dir)];
    snprintf(path, sizeof(path), "%s/hvdrun-XXXXXX", base);
    if (!mkdtemp(path)) /* mode 0700 */
        return err_sys(err, errno, "a private directory in %s", base);
    memcpy(c->dir, path, sizeof(path));
    memcpy(entry.dir, path, sizeof(path));
    jobs_path(c->servers.unix_path, sizeof(c->servers.unix_path), c->dir, "sock");
    size_t n = 0;
    for (char **w = c->core.job->argv; *w && n < sizeof(entry.command); w++)
        n += (size_t)snprintf(entry.command + n, sizeof(entry.command) - n, "%s%s", n ? " " : "",
                              *w);
    free(c->core.job->name);
    c->core.job->name = strdup(entry.name);
    return c->core.job->name ? jobs_publish(&entry, err) : err_set(err, ENOMEM, "no memory");
}

/* Writes the token beside the socket, for curl and hvd-doctor of this user. */
static int write_token(const struct coordinator *c, struct err *err)
{
    char path[sizeof(c->dir) + 16];
    snprintf(path, sizeof(path), "%s/token", c->dir);
    auto_close int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 ||
        fd_write_full(fd, c->servers.token, strlen(c->servers.token), deadline_in_ms(1000)) < 0)
        return err_sys(err, errno, "%s", path);
    return 0;
}

static int make_roster(struct coordinator *c, struct err *err)
{
    int n = c->core.job->hosts.n;
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
        const struct host *host = &c->core.job->hosts.list[i];
        hosts[i] = (struct roster_host){uids[i], host->name, host->nranks,
                                        c->core.job->elastic ? host->slots : 0};
    }
    if (rc == 0)
        rc = roster_init(&c->core.roster, c->core.job->name, key, hosts, n, err);
    const struct roster_elastic limits = coordinator_limits(c->core.job);
    if (rc == 0 && c->core.job->elastic)
        rc = roster_make_elastic(&c->core.roster, &limits, err);
    sodium_memzero(key, sizeof(key));
    free(hosts);
    free(uids);
    return rc;
}

int coordinator_open(struct coordinator *c, struct err *err)
{
    uint8_t token[32];
    randombytes_buf(token, sizeof(token));
    sodium_bin2hex(c->servers.token, sizeof(c->servers.token), token, sizeof(token));
    sodium_memzero(token, sizeof(token));
    auto_close int lock = -1;
    int rc = coordinator_agents_read_settings(&c->agents, err);
    if (rc == 0)
        rc = make_dir(c, &lock, err);
    if (rc == 0)
        rc = jobs_lock(c->dir, &c->dir_lock, err);
    if (rc == 0)
        rc = make_roster(c, err);
    if (rc == 0)
        rc = write_token(c, err);
    if (rc == 0)
        rc = coordinator_servers_open_unix(&c->servers, err);
    if (rc == 0)
        rc = coordinator_servers_open_tcp(&c->servers, err);
    c->discovery.first_hosts = c->core.roster.agents.n;
    if (rc == 0)
        coordinator_save_job(&c->save);
    return rc;
}

void coordinator_close(struct coordinator *c)
{
    discovery_stop(&c->discovery.script);
    coordinator_agents_kill(&c->agents);
    coordinator_agents_fini(&c->agents);
    /* Ranks of a killed agent are children of this process now. */
    reap_rest(500);
    coordinator_servers_close(&c->servers);
    if (c->dir[0])
        jobs_remove(c->dir);
    if (c->dir_lock >= 0)
        close(c->dir_lock);
    loop_timer_stop(&c->core.loop, &c->tick);
    loop_timer_stop(&c->core.loop, &c->news);
    loop_fd_stop(&c->core.loop, &c->signals);
    roster_fini(&c->core.roster);
}
