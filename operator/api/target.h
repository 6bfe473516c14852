/* SPDX-License-Identifier: Apache-2.0
 *
 * target: one server as requests need it: the URL in front of paths, where to connect instead of
 * what the URL names, files with certificates. Owned by api.c.
 */
#ifndef HVD_OPERATOR_API_TARGET_H
#define HVD_OPERATOR_API_TARGET_H

#include <stdbool.h>

#include "core/base/err.h"
#include "core/http/http.h"
#include "operator/api/access.h"

/* A file that curl may read: a path of somebody's, or a memfd with a text. */
struct target_file {
    char *path; /* NULL: none */
    int fd;
};

struct target {
    char *server, *host_header, *connect_to, *proxy; /* all but server may be NULL */
    struct target_file ca, cert, key;
    struct http_site site; /* with the above */
};

/* access_to is not kept. After a failure, too, the caller calls target_fini(). */
int target_init(struct target *t, const struct access *access_to, struct err *err);

/* Another client certificate; the paths differ from those before. */
int target_set_certificate(struct target *t, const char *cert_pem, const char *key_pem,
                           struct err *err);

void target_fini(struct target *t);

#endif
