/* SPDX-License-Identifier: Apache-2.0
 *
 * target: see target.h.
 */
#include "operator/api/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"

#define ANSWER_MAX        (8u << 20)
#define CONNECT_MS        10000
#define UNACKNOWLEDGED_MS 20000

static void file_fini(struct target_file *f)
{
    free(f->path);
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct target_file){.fd = -1};
}

/* Uses path, or puts text into a memfd, because curl's GnuTLS back end needs a file name. Both
 * NULL: no file. */
static int file_init(struct target_file *f, const char *path, const char *text, struct err *err)
{
    *f = (struct target_file){.fd = -1};
    if (text) {
        f->fd = memfd_create("hvd-tls", MFD_CLOEXEC);
        if (f->fd < 0)
            return err_sys(err, errno, "memfd for a certificate");
        int rc = fd_write_full(f->fd, text, strlen(text), deadline_in_ms(1000));
        if (rc < 0)
            return err_sys(err, -rc, "memfd for a certificate");
        if (asprintf(&f->path, "/proc/self/fd/%d", f->fd) < 0)
            f->path = NULL;
    } else if (path) {
        f->path = strdup(path);
    }
    return (text || path) && !f->path ? err_set(err, ENOMEM, "no memory") : 0;
}

/* curl verifies the certificate against the host in the URL. So with tls-server-name the URL has
 * that name, and CURLOPT_CONNECT_TO has the real address. */
static int set_names(struct target *t, const struct access *a, struct err *err)
{
    const char *scheme = strstr(a->server, "://");
    const char *at = scheme ? scheme + 3 : a->server, *name = a->tls_server_name;
    size_t n = strcspn(at, "/");
    bool named = name && strncmp(a->server, "https", 5) == 0;
    bool ok = true;
    if (!named) {
        t->server = strdup(a->server);
        ok = t->server;
    } else {
        const char *end = at[0] == '[' ? memchr(at, ']', n) : at;
        const char *colon = end ? memchr(end, ':', n - (size_t)(end - at)) : NULL;
        int host = (int)(colon ? (size_t)(colon - at) : n);
        const char *port = colon ? colon + 1 : "443";
        int digits = (int)(colon ? n - (size_t)(port - at) : 3);
        ok = asprintf(&t->server, "https://%s:%.*s%s", name, digits, port, at + n) >= 0 &&
             asprintf(&t->connect_to, "::%.*s:%.*s", host, at, digits, port) >= 0 &&
             asprintf(&t->host_header, "Host: %.*s", (int)n, at) >= 0;
    }
    return ok ? 0 : err_set(err, ENOMEM, "no memory");
}

int target_init(struct target *t, const struct access *access_to, struct err *err)
{
    *t = (struct target){.ca.fd = -1,
                         .cert.fd = -1,
                         .key.fd = -1,
                         .proxy = access_to->proxy_url ? strdup(access_to->proxy_url) : NULL};
    if (access_to->proxy_url && !t->proxy)
        return err_set(err, ENOMEM, "no memory");
    int rc = set_names(t, access_to, err);
    if (rc == 0)
        rc = file_init(&t->ca, access_to->ca_file, access_to->ca_pem, err);
    if (rc == 0)
        rc = file_init(&t->cert, access_to->cert_file, access_to->cert_pem, err);
    if (rc == 0)
        rc = file_init(&t->key, access_to->key_file, access_to->key_pem, err);
    t->site = (struct http_site){.server = t->server,
                                 .host_header = t->host_header,
                                 .connect_to = t->connect_to,
                                 .proxy = t->proxy,
                                 .ca_path = t->ca.path,
                                 .cert_path = t->cert.path,
                                 .key_path = t->key.path,
                                 .insecure = access_to->insecure,
                                 .one_connection = true,
                                 .user_agent = "hvd-operator",
                                 .answer_max = ANSWER_MAX,
                                 .connect_ms = CONNECT_MS,
                                 .unacknowledged_ms = UNACKNOWLEDGED_MS};
    return rc;
}

int target_set_certificate(struct target *t, const char *cert_pem, const char *key_pem,
                           struct err *err)
{
    struct target_file cert = {.fd = -1}, key = {.fd = -1};
    int rc = file_init(&cert, NULL, cert_pem, err);
    if (rc == 0)
        rc = file_init(&key, NULL, key_pem, err);
    if (rc < 0) {
        file_fini(&cert);
        file_fini(&key);
        return rc;
    }
    /* The new files are open before the old ones are closed, so their paths differ. */
    file_fini(&t->cert);
    file_fini(&t->key);
    t->cert = cert;
    t->key = key;
    t->site.cert_path = cert.path;
    t->site.key_path = key.path;
    return 0;
}

void target_fini(struct target *t)
{
    file_fini(&t->ca);
    file_fini(&t->cert);
    file_fini(&t->key);
    free(t->server);
    free(t->host_header);
    free(t->connect_to);
    free(t->proxy);
}
