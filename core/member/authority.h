/* SPDX-License-Identifier: Apache-2.0
 *
 * authority: certificate authorities and server certificates (GnuTLS). A job's own is made in
 * memory at its start and gone with it; an operator's outlives it, and issues a server certificate
 * at each start. Called once by the coordinator.
 */
#ifndef HVD_MEMBER_AUTHORITY_H
#define HVD_MEMBER_AUTHORITY_H

#include "core/base/err.h"

struct authority {
    char *ca_pem;   /* what agents trust, and nothing else */
    char *cert_pem; /* of the server, for all of its addresses */
    char *key_pem;  /* of the server; secret */
};

/* A certificate that is good for the given numeric addresses and DNS names and for a year; job
 * names it. */
int authority_create(struct authority *ret, const char *job, const char *const *addresses, int n,
                     struct err *err);

/* An authority that is kept, for ten years: its certificate and its own key, both to free(), the
 * key to be wiped. */
int authority_make_ca(char **ret_pem, char **ret_key_pem, const char *name, struct err *err);

/* A server certificate by such a one, as long as that lives. Foreign bytes: -EINVAL where they are
 * no certificate with its key, or it has expired. */
int authority_issue(struct authority *ret, const char *ca_pem, const char *ca_key_pem,
                    const char *const *addresses, int n, struct err *err);

/* A copy; -ENOMEM. */
int authority_copy(struct authority *ret, const struct authority *a);

/* Wipes the key. */
void authority_fini(struct authority *a);

#endif
