/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials: see credentials.h.
 */
#include "operator/api/credentials.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "operator/api/exec.h"

#define READ_EVERY (60 * CLOCK_S)
#define EARLY_US                                                                                   \
    (30 * 1000000LL) /* a credential is renewed so long before it expires, or at half its life */
#define TOKEN_MAX (64u << 10)
#define RERUN_AFTER                                                                                \
    (5 * CLOCK_S) /* least time between two runs of a plugin whose credential gets 401 */

struct credentials {
    struct loop *loop;
    const struct access *access;
    credentials_ready_f *ready;
    void *arg;
    char *header; /* NULL: none */
    unsigned serial;
    uint64_t read_at; /* clock_ns() of the token file's last reading; 0: none yet */
    struct exec_run *run;
    bool have;       /* there is a credential from the plugin */
    uint64_t ran_at; /* clock_ns() at which the plugin finished; 0: never */
    int64_t expires_us, renew_us;
};

static void forget(char **secret)
{
    if (*secret)
        sodium_memzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

/* Sets the header for a token, and counts c->serial up if it is another one than before. */
static int set_token(struct credentials *c, const char *token, struct err *err)
{
    char *line;
    if (asprintf(&line, "Authorization: Bearer %s", token) < 0)
        return err_set(err, ENOMEM, "no memory for a token");
    if (c->header && strcmp(c->header, line) == 0) {
        forget(&line);
        return 0;
    }
    forget(&c->header);
    c->header = line;
    c->serial++;
    return 0;
}

static int read_token(struct credentials *c, struct err *err)
{
    char *text = NULL;
    const char *path = c->access->token_file;
    int rc = fd_read_file(path, TOKEN_MAX, &text, NULL);
    if (rc < 0)
        return err_sys(err, -rc, "token file %s", path);
    size_t n = strcspn(text, " \t\r\n");
    if (n == 0 || text[n + strspn(text + n, " \t\r\n")]) {
        rc = err_set(err, EINVAL, "token file %s: want one token", path);
    } else {
        text[n] = '\0';
        rc = set_token(c, text, err);
    }
    forget(&text);
    c->read_at = clock_ns();
    return rc;
}

static int set_basic(struct credentials *c, struct err *err)
{
    const char *user = c->access->username;
    const char *password = c->access->password ? c->access->password : "";
    char *pair, *line = NULL;
    if (asprintf(&pair, "%s:%s", user, password) < 0)
        return err_set(err, ENOMEM, "no memory");
    size_t n = strlen(pair), size = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_ORIGINAL);
    auto_free char *text = malloc(size);
    if (text) {
        sodium_bin2base64(text, size, (unsigned char *)pair, n, sodium_base64_VARIANT_ORIGINAL);
        if (asprintf(&line, "Authorization: Basic %s", text) < 0)
            line = NULL;
        sodium_memzero(text, size);
    }
    forget(&pair);
    if (!line)
        return err_set(err, ENOMEM, "no memory");
    c->header = line;
    return 0;
}

static int take_times(struct credentials *c, int64_t expires_us, struct err *err)
{
    int64_t now = (int64_t)clock_wall_us(), left = expires_us - now;
    if (left <= 0)
        return err_set(err, EKEYEXPIRED, "credential plugin %s: its credential has expired already",
                       c->access->exec.argv[0]);
    c->expires_us = expires_us;
    c->renew_us = expires_us - (left / 2 < EARLY_US ? left / 2 : EARLY_US);
    return 0;
}

static void on_plugin(void *arg, struct exec_credential *got, const struct err *err)
{
    struct credentials *c = arg;
    struct err problem = *err;
    c->run = NULL;
    c->ran_at = clock_ns();
    if (!got) {
        c->ready(c->arg, NULL, NULL, &problem);
        return;
    }
    int rc = take_times(c, got->expires_us, &problem);
    if (rc == 0 && got->token)
        rc = set_token(c, got->token, &problem);
    c->have = rc == 0;
    if (got->cert_pem)
        c->serial++;
    c->ready(c->arg, got->cert_pem, got->key_pem, rc == 0 ? NULL : &problem);
    exec_credential_fini(got);
}

/* While the plugin renews a credential the old one is used until it expires, so that a slow plugin
 * delays no request, above all not the lease. */
static int from_plugin(struct credentials *c, const char **ret, struct err *err)
{
    int64_t now = (int64_t)clock_wall_us();
    bool good = c->have && now < c->expires_us, fresh = good && now < c->renew_us;
    bool rested = !good || clock_ns() - c->ran_at >= RERUN_AFTER;
    if (!fresh && !c->run && rested) {
        int rc = exec_start(&c->run, c->loop, c->access, on_plugin, c, err);
        if (rc < 0 && !good)
            return rc;
    }
    if (!good)
        return 1;
    *ret = c->header;
    return 0;
}

int credentials_header(struct credentials *c, const char **ret, struct err *err)
{
    if (c->access->exec.argv)
        return from_plugin(c, ret, err);
    if (c->access->token_file && (!c->read_at || clock_ns() - c->read_at >= READ_EVERY)) {
        struct err problem = {0};
        int rc = read_token(c, &problem);
        /* The file may be in the middle of a replacement: use the old token for another minute. */
        if (rc < 0 && !c->header)
            return err_set(err, -rc, "%s", problem.msg);
        if (rc < 0)
            log_debug("%s", problem.msg);
    }
    *ret = c->header;
    return 0;
}

bool credentials_refused(struct credentials *c, unsigned serial)
{
    if (serial != c->serial)
        return true; /* the credential has changed since that request */
    if (c->access->exec.argv) {
        if (c->run) {
            c->have = false; /* requests wait for the next run */
            return true;
        }
        if (!c->have || clock_ns() - c->ran_at < RERUN_AFTER)
            return false;
        c->have = false;
        return true;
    }
    if (!c->access->token_file)
        return false;
    struct err problem = {0};
    if (read_token(c, &problem) < 0)
        log_debug("%s", problem.msg);
    return serial != c->serial;
}

unsigned credentials_serial(const struct credentials *c)
{
    return c->serial;
}

int credentials_open(struct credentials **ret, struct loop *loop, const struct access *access_to,
                     credentials_ready_f *ready, void *arg, struct err *err)
{
    struct credentials *c = calloc(1, sizeof(*c));
    if (!c)
        return err_set(err, ENOMEM, "no memory");
    *c = (struct credentials){.loop = loop, .access = access_to, .ready = ready, .arg = arg};
    int rc = 0;
    if (access_to->token_file || access_to->exec.argv)
        rc = 0; /* read at the first request */
    else if (access_to->token)
        rc = set_token(c, access_to->token, err);
    else if (access_to->username)
        rc = set_basic(c, err);
    if (rc < 0) {
        credentials_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

void credentials_close(struct credentials *c)
{
    if (!c)
        return;
    exec_cancel(c->run);
    forget(&c->header);
    free(c);
}
