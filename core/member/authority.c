/* SPDX-License-Identifier: Apache-2.0
 *
 * authority: see authority.h. The private key of a job's CA never leaves this file.
 */
#include "core/member/authority.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
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

/* Fills the fields that all certificates have in common, but not the public key. */
static int begin_cert(gnutls_x509_crt_t *ret, const char *name, time_t until)
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
    return rc;
}

static int sign_ca(gnutls_x509_crt_t cert, gnutls_x509_crt_t by, gnutls_x509_privkey_t by_key)
{
    int rc = gnutls_x509_crt_set_basic_constraints(cert, 1, -1);
    rc = rc < 0 ? rc : gnutls_x509_crt_set_key_usage(cert, GNUTLS_KEY_KEY_CERT_SIGN);
    return rc < 0 ? rc : gnutls_x509_crt_sign2(cert, by, by_key, GNUTLS_DIG_SHA256, 0);
}

static int make_ca(struct signer *ca, const char *name, time_t until)
{
    int rc = make_key(&ca->key);
    rc = rc < 0 ? rc : begin_cert(&ca->cert, name, until);
    rc = rc < 0 ? rc : gnutls_x509_crt_set_key(ca->cert, ca->key);
    return rc < 0 ? rc : sign_ca(ca->cert, ca->cert, ca->key);
}

/* The end of a life of life_s seconds (0: no limit) of what ca signs. */
static time_t end_of(const struct signer *ca, long life_s)
{
    time_t end = gnutls_x509_crt_get_expiration_time(ca->cert), now = time(NULL);
    return life_s > 0 && now + life_s < end ? now + life_s : end;
}

static int make_server(struct signer *server, const struct signer *ca, const char *const *addresses,
                       int n, long life_s)
{
    int rc = make_key(&server->key);
    rc = rc < 0 ? rc : begin_cert(&server->cert, "hvd", end_of(ca, life_s));
    rc = rc < 0 ? rc : gnutls_x509_crt_set_key(server->cert, server->key);
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
    rc = rc < 0 ? rc : make_server(&server, &ca, addresses, n, 0);
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

/* Parses a stored CA that is to sign something. Returns why it cannot; NULL: it can. */
static const char *take_ca(struct signer *ca, const char *pem, const char *key_pem)
{
    int rc = import_ca(ca, pem, key_pem);
    if (rc < 0)
        return gnutls_strerror(rc);
    if (!belong_together(ca))
        return "its key is another one's";
    return gnutls_x509_crt_get_expiration_time(ca->cert) <= time(NULL) ? "it has expired" : NULL;
}

int authority_issue(struct authority *ret, const char *ca_pem, const char *ca_key_pem,
                    const char *const *addresses, int n, long life_s, struct err *err)
{
    struct signer ca = {0}, server = {0};
    struct authority a = {0};
    const char *odd = take_ca(&ca, ca_pem, ca_key_pem);
    int rc = odd ? 0 : make_server(&server, &ca, addresses, n, life_s);
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

static int import_cert(gnutls_x509_crt_t *ret, const char *pem)
{
    gnutls_datum_t text = {(unsigned char *)pem, (unsigned)strlen(pem)};
    int rc = gnutls_x509_crt_init(ret);
    return rc < 0 ? rc : gnutls_x509_crt_import(*ret, &text, GNUTLS_X509_FMT_PEM);
}

/* Makes a certificate with the name and public key of `other`. */
static int begin_cross(gnutls_x509_crt_t *ret, gnutls_x509_crt_t other, time_t until)
{
    gnutls_pubkey_t key;
    char name[64] = {0};
    size_t n = sizeof(name) - 1;
    int rc = gnutls_pubkey_init(&key);
    if (rc < 0)
        return rc;
    rc = gnutls_x509_crt_get_dn_by_oid(other, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &n);
    rc = rc < 0 ? rc : gnutls_pubkey_import_x509(key, other, 0);
    rc = rc < 0 ? rc : begin_cert(ret, name, until);
    rc = rc < 0 ? rc : gnutls_x509_crt_set_pubkey(*ret, key);
    gnutls_pubkey_deinit(key);
    return rc;
}

int authority_cross(char **ret_pem, const char *other_pem, const char *ca_pem,
                    const char *ca_key_pem, long life_s, struct err *err)
{
    struct signer ca = {0};
    gnutls_x509_crt_t other = NULL, cross = NULL;
    gnutls_datum_t pem = {0};
    const char *odd = take_ca(&ca, ca_pem, ca_key_pem);
    int rc = odd ? 0 : import_cert(&other, other_pem);
    if (!odd && rc == 0)
        rc = begin_cross(&cross, other, end_of(&ca, life_s));
    if (!odd && rc == 0)
        rc = sign_ca(cross, ca.cert, ca.key);
    if (!odd && rc == 0)
        rc = gnutls_x509_crt_export2(cross, GNUTLS_X509_FMT_PEM, &pem);
    signer_fini(&ca);
    gnutls_x509_crt_deinit(other);
    gnutls_x509_crt_deinit(cross);
    char *text = take_text(&pem);
    if (odd)
        return err_set(err, EINVAL, "the certificate authority: %s", odd);
    if (!text)
        return err_set(err, EIO, "a cross certificate: %s",
                       rc < 0 ? gnutls_strerror(rc) : "no memory");
    *ret_pem = text;
    return 0;
}

int authority_span(const char *pem, int64_t *ret_made, int64_t *ret_until, struct err *err)
{
    gnutls_x509_crt_t cert = NULL;
    int rc = import_cert(&cert, pem);
    if (rc == 0) {
        *ret_made = gnutls_x509_crt_get_activation_time(cert) + SKEW_S;
        *ret_until = gnutls_x509_crt_get_expiration_time(cert);
    }
    gnutls_x509_crt_deinit(cert);
    return rc < 0 ? err_set(err, EINVAL, "a certificate: %s", gnutls_strerror(rc)) : 0;
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
