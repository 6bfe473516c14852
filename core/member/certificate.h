/* SPDX-License-Identifier: Apache-2.0
 *
 * certificate: the certificate chain and key of a TLS server, which may be replaced while
 * connections are open. Part of server.c.
 */
#ifndef HVD_MEMBER_CERTIFICATE_H
#define HVD_MEMBER_CERTIFICATE_H

#include <gnutls/abstract.h>

#include "core/base/err.h"

struct certificate {
    gnutls_pcert_st *chain; /* owned; the server's own certificate first */
    unsigned n;             /* 0: none */
    gnutls_privkey_t key;
};

/* Parses a chain in PEM, in order, and its key. -EINVAL; ret is untouched then. */
int certificate_read(struct certificate *ret, const char *chain_pem, const char *key_pem,
                     struct err *err);

void certificate_fini(struct certificate *c);

/* Sets the certificate that certificate_choose() returns to handshakes on this thread; NULL: none.
 * It is a variable of the thread, because GnuTLS passes no user pointer to that callback. */
void certificate_set_current(struct certificate *c);

/* A gnutls_certificate_retrieve_function2. */
int certificate_choose(gnutls_session_t session, const gnutls_datum_t *names, int nnames,
                       const gnutls_pk_algorithm_t *algorithms, int nalgorithms,
                       gnutls_pcert_st **ret_chain, unsigned *ret_n, gnutls_privkey_t *ret_key);

#endif
