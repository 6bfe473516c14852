/* SPDX-License-Identifier: Apache-2.0
 *
 * target: what curl needs to know of one server: the base URL, another address to connect to,
 * certificate files. Owned by api.c.
 */
#ifndef HVD_OPERATOR_API_TARGET_H
#define HVD_OPERATOR_API_TARGET_H

#include <stdbool.h>

#include "core/base/err.h"
#include "core/http/http.h"
#include "operator/api/access.h"

/* A file for curl: a path from the kubeconfig, or a memfd with a text. */
struct target_file {
    char *path; /* NULL: none */
    int fd;
};

struct target {
    char *server, *host_header, *connect_to, *proxy; /* all but server may be NULL */
    struct target_file ca, cert, key;
    struct http_site site; /* with the above */
};

/* access_to is not kept. The caller calls target_fini(), also after a failure. */
int target_init(struct target *t, const struct access *access_to, struct err *err);

/* Sets another client certificate. The files get new paths, so that curl does not reuse a
 * connection with the old one. */
int target_set_certificate(struct target *t, const char *cert_pem, const char *key_pem,
                           struct err *err);

void target_fini(struct target *t);

#endif
