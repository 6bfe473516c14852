/* SPDX-License-Identifier: Apache-2.0
 *
 * authority: certificate authorities and server certificates (GnuTLS). A job's CA is made in memory
 * at its start and ends with the job. An operator's CA outlives the operator and issues a server
 * certificate at each of its starts. Called once by the coordinator.
 */
#ifndef HVD_MEMBER_AUTHORITY_H
#define HVD_MEMBER_AUTHORITY_H

#include "core/base/err.h"

struct authority {
    char *ca_pem;   /* the only CA that agents trust */
    char *cert_pem; /* the server's certificate, for all of its addresses */
    char *key_pem;  /* the server's private key; secret */
};

/* Creates a CA and a server certificate, valid for one year, for the given numeric addresses and
 * DNS names. job: the CA's name. */
int authority_create(struct authority *ret, const char *job, const char *const *addresses, int n,
                     struct err *err);

/* Creates a CA that is stored, valid for ten years. The caller frees both texts and wipes the key.
 */
int authority_make_ca(char **ret_pem, char **ret_key_pem, const char *name, struct err *err);

/* Issues a server certificate that is valid as long as the stored CA. The texts are untrusted:
 * -EINVAL when they are no certificate with its key, or when it has expired. */
int authority_issue(struct authority *ret, const char *ca_pem, const char *ca_key_pem,
                    const char *const *addresses, int n, struct err *err);

/* Copies a. -ENOMEM. */
int authority_copy(struct authority *ret, const struct authority *a);

/* Wipes the key and frees the texts. */
void authority_fini(struct authority *a);

#endif
