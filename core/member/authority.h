/* SPDX-License-Identifier: Apache-2.0
 *
 * authority: certificate authorities and server certificates (GnuTLS). A job's CA is made in memory
 * at its start and ends with the job. An operator's CA is stored, issues server certificates for
 * some days each, and has a successor now and then. Called by coordinators.
 */
#ifndef HVD_MEMBER_AUTHORITY_H
#define HVD_MEMBER_AUTHORITY_H

#include <stdint.h>

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

/* Issues a server certificate that is valid for life_s seconds (0: no limit), but not longer than
 * the stored CA. The texts are untrusted: -EINVAL when they are no certificate with its key, or
 * when it has expired. */
int authority_issue(struct authority *ret, const char *ca_pem, const char *ca_key_pem,
                    const char *const *addresses, int n, long life_s, struct err *err);

/* Signs another CA's name and public key with a stored CA, so that clients that trust only the
 * stored one accept certificates of the other: the cross certificate goes into the server's chain.
 * Valid for life_s seconds (0: no limit), but not longer than the stored CA. The caller frees the
 * text. -EINVAL as above. */
int authority_cross(char **ret_pem, const char *other_pem, const char *ca_pem,
                    const char *ca_key_pem, long life_s, struct err *err);

/* The times, in seconds since 1970, at which a certificate was made and from which it is invalid.
 * -EINVAL. */
int authority_span(const char *pem, int64_t *ret_made, int64_t *ret_until, struct err *err);

/* Copies a. -ENOMEM. */
int authority_copy(struct authority *ret, const struct authority *a);

/* Wipes the key and frees the texts. */
void authority_fini(struct authority *a);

#endif
