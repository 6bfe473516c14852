/* SPDX-License-Identifier: Apache-2.0
 *
 * authority: a job's own certificate authority and its server certificate, made in memory at the
 * start of a job and gone with it (GnuTLS). Called once by the coordinator.
 */
#ifndef HVD_MEMBER_AUTHORITY_H
#define HVD_MEMBER_AUTHORITY_H

#include "core/base/err.h"

struct authority {
    char *ca_pem;   /* what agents trust, and nothing else */
    char *cert_pem; /* of the server, for all of its addresses */
    char *key_pem;  /* of the server; secret */
};

/* A certificate that is good for the given numeric addresses and for a year; job names it. */
int authority_create(struct authority *ret, const char *job, const char *const *addresses, int n,
                     struct err *err);

/* A copy; -ENOMEM. */
int authority_copy(struct authority *ret, const struct authority *a);

/* Wipes the key. */
void authority_fini(struct authority *a);

#endif
