/* SPDX-License-Identifier: Apache-2.0
 *
 * authority: see authority.h. The private key of a job's CA never leaves this file.
 */
#include "core/member/authority.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIFE_S (365 * 24 * 3600L)
#define KEPT_S (10 * LIFE_S)
#define SKEW_S (24 * 3600L) /* tolerance for clocks of other hosts that are behind */

struct signer {
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t cert;
};

static int make_key(gnutls_x509_privkey_t *ret)
{
    int rc = gnutls_x509_privkey_init(ret);
    unsigned bits = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1);
    return rc < 0 ? rc : gnutls_x509_privkey_generate(*ret, GNUTLS_PK_ECDSA, bits, 0);
}

static int add_address(gnutls_x509_crt_t cert, const char *address)
{
    unsigned char raw[16];
    unsigned n = inet_pton(AF_INET, address, raw) == 1    ? 4
                 : inet_pton(AF_INET6, address, raw) == 1 ? 16
                                                          : 0;
    return n ? gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_IPADDRESS, raw, n,
                                                    GNUTLS_FSAN_APPEND)
             : gnutls_x509_crt_set_subject_alt_name(cert, GNUTLS_SAN_DNSNAME, address,
                                                    (unsigned)strlen(address), GNUTLS_FSAN_APPEND);
}

/* Fills the fields that a CA and a server certificate have in common. */
static int begin_cert(gnutls_x509_crt_t *ret, gnutls_x509_privkey_t key, const char *name,
                      time_t until)
{
    unsigned char serial[16];
    time_t now = time(NULL);
    char common[64];
    randombytes_buf(serial, sizeof(serial));
    /* Makes the serial number positive and of full length. */
    serial[0] = (serial[0] & 0x7f) | 1;
    int rc = gnutls_x509_crt_init(ret);
    gnutls_x509_crt_t cert = *ret;
    /* A common name has at most 64 bytes. */
    size_t n = strnlen(name, sizeof(common) - 1);
    memcpy(common, name, n);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_dn_by_oid(cert, GNUTLS_OID_X520_COMMON_NAME, 0, common,
                                           (unsigned)n);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_version(cert, 3);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_serial(cert, serial, sizeof(serial));
    if (rc >= 0)
        rc = gnutls_x509_crt_set_activation_time(cert, now - SKEW_S);
    if (rc >= 0)
        rc = gnutls_x509_crt_set_expiration_time(cert, until);
    return rc < 0 ? rc : gnutls_x509_crt_set_key(cert, key);
}

static int make_ca(struct signer *ca, const char *job, time_t until)
{
    int rc = make_key(&ca->key);
    rc = rc < 0 ? rc : begin_cert(&ca->cert, ca->key, job, until);
    rc = rc < 0 ? rc : gnutls_x509_crt_set_basic_constraints(ca->cert, 1, 0);
    rc = rc < 0 ? rc : gnutls_x509_crt_set_key_usage(ca->cert, GNUTLS_KEY_KEY_CERT_SIGN);
    return rc < 0 ? rc : gnutls_x509_crt_sign2(ca->cert, ca->cert, ca->key, GNUTLS_DIG_SHA256, 0);
}

static int make_server(struct signer *server, const struct signer *ca, const char *const *addresses,
                       int n)
{
    int rc = make_key(&server->key);
    rc = rc < 0 ? rc
                : begin_cert(&server->cert, server->key, "hvd",
                             gnutls_x509_crt_get_expiration_time(ca->cert));
    rc = rc < 0 ? rc : gnutls_x509_crt_set_basic_constraints(server->cert, 0, -1);
    rc = rc < 0 ? rc
                : gnutls_x509_crt_set_key_purpose_oid(server->cert, GNUTLS_KP_TLS_WWW_SERVER, 0);
    for (int i = 0; i < n && rc >= 0; i++)
        rc = add_address(server->cert, addresses[i]);
    return rc < 0 ? rc
                  : gnutls_x509_crt_sign2(server->cert, ca->cert, ca->key, GNUTLS_DIG_SHA256, 0);
}

/* Moves what GnuTLS allocated into a C string of ours. */
static char *take_text(gnutls_datum_t *datum)
{
    char *text = datum->data ? strndup((char *)datum->data, datum->size) : NULL;
    if (datum->data)
        sodium_memzero(datum->data, datum->size);
    gnutls_free(datum->data);
    return text;
}

static int export_all(struct authority *a, const struct signer *ca, const struct signer *server)
{
    gnutls_datum_t ca_pem = {0}, cert_pem = {0}, key_pem = {0};
    int rc = gnutls_x509_crt_export2(ca->cert, GNUTLS_X509_FMT_PEM, &ca_pem);
    rc = rc < 0 ? rc : gnutls_x509_crt_export2(server->cert, GNUTLS_X509_FMT_PEM, &cert_pem);
    rc = rc < 0 ? rc : gnutls_x509_privkey_export2(server->key, GNUTLS_X509_FMT_PEM, &key_pem);
    a->ca_pem = take_text(&ca_pem);
    a->cert_pem = take_text(&cert_pem);
    a->key_pem = take_text(&key_pem);
    return rc < 0 || (a->ca_pem && a->cert_pem && a->key_pem) ? rc : GNUTLS_E_MEMORY_ERROR;
}

static void signer_fini(struct signer *s)
{
    if (s->key)
        gnutls_x509_privkey_deinit(s->key);
    if (s->cert)
        gnutls_x509_crt_deinit(s->cert);
}

int authority_create(struct authority *ret, const char *job, const char *const *addresses, int n,
                     struct err *err)
{
    struct signer ca = {0}, server = {0};
    struct authority a = {0};
    int rc = make_ca(&ca, job, time(NULL) + LIFE_S);
    rc = rc < 0 ? rc : make_server(&server, &ca, addresses, n);
    rc = rc < 0 ? rc : export_all(&a, &ca, &server);
    signer_fini(&ca);
    signer_fini(&server);
    if (rc < 0) {
        authority_fini(&a);
        return err_set(err, EIO, "the job's certificates: %s", gnutls_strerror(rc));
    }
    *ret = a;
    return 0;
}

int authority_make_ca(char **ret_pem, char **ret_key_pem, const char *name, struct err *err)
{
    struct signer ca = {0};
    gnutls_datum_t pem = {0}, key = {0};
    int rc = make_ca(&ca, name, time(NULL) + KEPT_S);
    rc = rc < 0 ? rc : gnutls_x509_crt_export2(ca.cert, GNUTLS_X509_FMT_PEM, &pem);
    rc = rc < 0 ? rc : gnutls_x509_privkey_export2(ca.key, GNUTLS_X509_FMT_PEM, &key);
    signer_fini(&ca);
    struct authority made = {.ca_pem = take_text(&pem), .key_pem = take_text(&key)};
    if (rc >= 0 && (!made.ca_pem || !made.key_pem))
        rc = GNUTLS_E_MEMORY_ERROR;
    if (rc < 0) {
        authority_fini(&made);
        return err_set(err, EIO, "a certificate authority: %s", gnutls_strerror(rc));
    }
    *ret_pem = made.ca_pem;
    *ret_key_pem = made.key_pem;
    return 0;
}

static int import_ca(struct signer *ca, const char *pem, const char *key_pem)
{
    gnutls_datum_t cert = {(unsigned char *)pem, (unsigned)strlen(pem)};
    gnutls_datum_t key = {(unsigned char *)key_pem, (unsigned)strlen(key_pem)};
    int rc = gnutls_x509_crt_init(&ca->cert);
    rc = rc < 0 ? rc : gnutls_x509_crt_import(ca->cert, &cert, GNUTLS_X509_FMT_PEM);
    rc = rc < 0 ? rc : gnutls_x509_privkey_init(&ca->key);
    return rc < 0 ? rc : gnutls_x509_privkey_import(ca->key, &key, GNUTLS_X509_FMT_PEM);
}

/* Returns true when the key belongs to the certificate. */
static bool belong_together(const struct signer *ca)
{
    unsigned char a[64], b[64];
    size_t na = sizeof(a), nb = sizeof(b);
    return gnutls_x509_crt_get_key_id(ca->cert, 0, a, &na) == 0 &&
           gnutls_x509_privkey_get_key_id(ca->key, 0, b, &nb) == 0 && na == nb &&
           memcmp(a, b, na) == 0;
}

int authority_issue(struct authority *ret, const char *ca_pem, const char *ca_key_pem,
                    const char *const *addresses, int n, struct err *err)
{
    struct signer ca = {0}, server = {0};
    struct authority a = {0};
    const char *odd = NULL;
    int rc = import_ca(&ca, ca_pem, ca_key_pem);
    if (rc < 0)
        odd = gnutls_strerror(rc);
    else if (!belong_together(&ca))
        odd = "its key is another one's";
    else if (gnutls_x509_crt_get_expiration_time(ca.cert) <= time(NULL))
        odd = "it has expired";
    rc = odd ? rc : make_server(&server, &ca, addresses, n);
    rc = odd || rc < 0 ? rc : export_all(&a, &ca, &server);
    signer_fini(&ca);
    signer_fini(&server);
    if (odd)
        return err_set(err, EINVAL, "the certificate authority: %s", odd);
    if (rc < 0) {
        authority_fini(&a);
        return err_set(err, EIO, "a server certificate: %s", gnutls_strerror(rc));
    }
    *ret = a;
    return 0;
}

int authority_copy(struct authority *ret, const struct authority *a)
{
    struct authority copy = {.ca_pem = strdup(a->ca_pem),
                             .cert_pem = strdup(a->cert_pem),
                             .key_pem = strdup(a->key_pem)};
    if (!copy.ca_pem || !copy.cert_pem || !copy.key_pem) {
        authority_fini(&copy);
        return -ENOMEM;
    }
    *ret = copy;
    return 0;
}

void authority_fini(struct authority *a)
{
    if (a->key_pem)
        sodium_memzero(a->key_pem, strlen(a->key_pem));
    free(a->ca_pem);
    free(a->cert_pem);
    free(a->key_pem);
    *a = (struct authority){0};
}
