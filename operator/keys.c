/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: see keys.h.
 */
#include "operator/keys.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "core/member/authority.h"

#define PEM_MAX 16384

int keys_make(struct keys *ret, struct err *err)
{
    struct keys k = {0};
    int rc = authority_make_ca(&k.ca_pem, &k.ca_key_pem, "hvd-operator", err);
    if (rc < 0)
        return rc;
    randombytes_buf(k.secret, sizeof(k.secret));
    *ret = k;
    return 0;
}

json_t *keys_pack(const struct keys *keys)
{
    json_t *j = json_object();
    json_put(&j, "ca.crt", json_bytes(keys->ca_pem, strlen(keys->ca_pem)));
    json_put(&j, "ca.key", json_bytes(keys->ca_key_pem, strlen(keys->ca_key_pem)));
    json_put(&j, "secret", json_bytes(keys->secret, sizeof(keys->secret)));
    return j;
}

/* Decodes one field, which must be text. */
static int take_pem(const char *text, const char *field, char **ret, struct err *err)
{
    size_t len = 0;
    char *pem = calloc(1, PEM_MAX + 1);
    if (!pem)
        return err_set(err, ENOMEM, "no memory for %s", field);
    int rc = json_bytes_read(text, field, pem, PEM_MAX, &len, err);
    if (rc == 0 && strlen(pem) != len)
        rc = err_set(err, EINVAL, "%s: no PEM", field);
    if (rc < 0)
        free(pem);
    else
        *ret = pem;
    return rc;
}

int keys_unpack(json_t *data, struct keys *ret, struct err *err)
{
    const char *ca = "", *ca_key = "", *secret = "", *const probe[] = {"hvd-operator"};
    size_t len = 0;
    struct keys k = {0};
    struct authority tried = {0};
    int rc = json_expect(data, "the Secret of the operator's keys", err, "{s:s, s:s, s:s}",
                         "ca.crt", &ca, "ca.key", &ca_key, "secret", &secret);
    if (rc == 0)
        rc = take_pem(ca, "ca.crt", &k.ca_pem, err);
    if (rc == 0)
        rc = take_pem(ca_key, "ca.key", &k.ca_key_pem, err);
    if (rc == 0)
        rc = json_bytes_read(secret, "secret", k.secret, sizeof(k.secret), &len, err);
    if (rc == 0 && len != sizeof(k.secret))
        rc = err_set(err, EINVAL, "secret: %zu bytes, want %d", len, KEYS_SIZE);
    if (rc == 0)
        rc = authority_issue(&tried, k.ca_pem, k.ca_key_pem, probe, 1, err);
    authority_fini(&tried);
    if (rc < 0)
        keys_fini(&k);
    else
        *ret = k;
    return rc;
}

void keys_fini(struct keys *keys)
{
    if (keys->ca_key_pem)
        sodium_memzero(keys->ca_key_pem, strlen(keys->ca_key_pem));
    free(keys->ca_pem);
    free(keys->ca_key_pem);
    sodium_memzero(keys, sizeof(*keys));
}

void keys_job(const struct keys *keys, const char *job_uid, char dst[KEYS_JOB_MAX])
{
    static const char purpose[] = "hvd job key 1:";
    crypto_auth_hmacsha256_state state;
    uint8_t mac[crypto_auth_hmacsha256_BYTES];
    char hex[2 * sizeof(mac) + 1];
    crypto_auth_hmacsha256_init(&state, keys->secret, sizeof(keys->secret));
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)purpose, sizeof(purpose) - 1);
    crypto_auth_hmacsha256_update(&state, (const uint8_t *)job_uid, strlen(job_uid));
    crypto_auth_hmacsha256_final(&state, mac);
    sodium_bin2hex(hex, sizeof(hex), mac, sizeof(mac));
    snprintf(dst, KEYS_JOB_MAX, PLANE_KEY_PREFIX "%s", hex);
    sodium_memzero(&state, sizeof(state));
    sodium_memzero(mac, sizeof(mac));
    sodium_memzero(hex, sizeof(hex));
}

void keys_job_hash(const struct keys *keys, const char *job_uid, uint8_t dst[PLANE_HASH_SIZE])
{
    char key[KEYS_JOB_MAX];
    keys_job(keys, job_uid, key);
    crypto_hash_sha256(dst, (const uint8_t *)key, strlen(key));
    sodium_memzero(key, sizeof(key));
}
