/* SPDX-License-Identifier: Apache-2.0
 *
 * certificate: see certificate.h.
 */
#include "core/member/certificate.h"

#include <stdlib.h>
#include <string.h>

#define CHAIN_MAX 16

int certificate_read(struct certificate *ret, const char *chain_pem, const char *key_pem,
                     struct err *err)
{
    const gnutls_datum_t chain = {(unsigned char *)chain_pem, (unsigned)strlen(chain_pem)};
    const gnutls_datum_t key = {(unsigned char *)key_pem, (unsigned)strlen(key_pem)};
    struct certificate c = {.chain = calloc(CHAIN_MAX, sizeof(*c.chain))};
    unsigned n = CHAIN_MAX;
    if (!c.chain)
        return err_set(err, ENOMEM, "no memory for a certificate");
    int rc = gnutls_pcert_list_import_x509_raw(c.chain, &n, &chain, GNUTLS_X509_FMT_PEM, 0);
    c.n = rc < 0 ? 0 : n;
    rc = rc < 0 ? rc : gnutls_privkey_init(&c.key);
    rc = rc < 0 ? rc : gnutls_privkey_import_x509_raw(c.key, &key, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (rc < 0) {
        certificate_fini(&c);
        return err_set(err, EINVAL, "the server's certificate: %s", gnutls_strerror(rc));
    }
    *ret = c;
    return 0;
}

void certificate_fini(struct certificate *c)
{
    for (unsigned i = 0; i < c->n; i++)
        gnutls_pcert_deinit(&c->chain[i]);
    free(c->chain);
    if (c->key)
        gnutls_privkey_deinit(c->key);
    *c = (struct certificate){0};
}

static _Thread_local struct certificate *current;

void certificate_set_current(struct certificate *c)
{
    current = c;
}

int certificate_choose(gnutls_session_t session, const gnutls_datum_t *names, int nnames,
                       const gnutls_pk_algorithm_t *algorithms, int nalgorithms,
                       gnutls_pcert_st **ret_chain, unsigned *ret_n, gnutls_privkey_t *ret_key)
{
    (void)session, (void)names, (void)nnames, (void)algorithms, (void)nalgorithms;
    if (!current)
        return -1;
    *ret_chain = current->chain;
    *ret_n = current->n;
    *ret_key = current->key;
    return 0;
}
