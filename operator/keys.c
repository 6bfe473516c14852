/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: see keys.h.
 */
#include "operator/keys.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buf.h"
#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "core/json/json.h"
#include "operator/objects/moment.h"

#define PEM_MAX   16384
#define PEM_BEGIN "-----BEGIN CERTIFICATE-----"
#define PEM_END   "-----END CERTIFICATE-----"

/* Each CA has a name of its own, so that a chain of several can be told apart. */
static int make_ca(struct keys *k, struct err *err)
{
    char name[40];
    snprintf(name, sizeof(name), "hvd-operator %08x", randombytes_random());
    return authority_make_ca(&k->ca_pem, &k->ca_key_pem, name, err);
}

int keys_make(struct keys *ret, struct err *err)
{
    struct keys k = {.old_pem = strdup(""), .cross_pem = strdup("")};
    int rc =
        k.old_pem && k.cross_pem ? make_ca(&k, err) : err_set(err, ENOMEM, "no memory for keys");
    if (rc < 0) {
        keys_fini(&k);
        return rc;
    }
    randombytes_buf(k.secret, sizeof(k.secret));
    *ret = k;
    return 0;
}

/* ---- rotation -------------------------------------------------------------------------------- */

static bool is_valid(const char *pem)
{
    int64_t made, until;
    return authority_span(pem, &made, &until, NULL) == 0 &&
           until > (int64_t)(clock_wall_us() / 1000000);
}

/* Copies the certificates of `first` and then of `more`, newest first, up to `max`, and not from
 * the first that has expired. Returns the text, which the caller frees; NULL: no memory. *ret_n:
 * how many. */
static char *join(const char *first, const char *more, int max, int *ret_n)
{
    struct buf all = {0};
    const char *const parts[] = {first, more};
    bool valid = true;
    int n = 0;
    for (int i = 0; i < 2; i++)
        for (const char *end, *at = parts[i]; valid && n < max && (end = strstr(at, PEM_END));
             at = end) {
            end += strlen(PEM_END);
            end += *end == '\n';
            auto_free char *one = strndup(at, (size_t)(end - at));
            valid = one && is_valid(one);
            if (valid)
                buf_put(&all, one, strlen(one));
            n += valid;
        }
    buf_put_u8(&all, 0);
    char *text = all.failed ? NULL : strdup((char *)all.data);
    buf_fini(&all);
    *ret_n = n;
    return text;
}

/* How many predecessors were replaced at or after needed_s: each by the CA in front of it, which
 * was made then. */
static int count_needed(const struct keys *keys, int64_t needed_s)
{
    int n = 0;
    int64_t made = 0, until;
    const char *successor = keys->ca_pem;
    for (const char *at = keys->old_pem; at && (at = strstr(at, PEM_BEGIN));
         at = strstr(at, PEM_END)) {
        if (authority_span(successor, &made, &until, NULL) < 0 || made < needed_s)
            break;
        successor = at;
        n++;
    }
    return n;
}

static int refuse(int64_t needed_s, struct err *err)
{
    char since[MOMENT_SIZE];
    moment_write(needed_s * MOMENT_S, since);
    return err_set(err, ENOSPC,
                   "pods of jobs, the oldest of about %s, need its last %d predecessors, and no "
                   "more are kept. Delete the oldest pods; their workers are replaced",
                   since, KEYS_OLD_MAX);
}

int keys_rotate(const struct keys *keys, int64_t needed_s, struct keys *ret, struct err *err)
{
    struct keys k = {0};
    char *cross = NULL;
    int needed = 1 + count_needed(keys, needed_s), n = 0;
    if (needed > KEYS_OLD_MAX)
        return refuse(needed_s, err);
    int rc = make_ca(&k, err);
    rc = rc < 0 ? rc : authority_cross(&cross, k.ca_pem, keys->ca_pem, keys->ca_key_pem, 0, err);
    if (rc == 0) {
        k.cross_pem = join(cross, keys->cross_pem, needed, &n);
        k.old_pem = join(keys->ca_pem, keys->old_pem, n, &n);
        if (!k.cross_pem || !k.old_pem)
            rc = err_set(err, ENOMEM, "no memory for keys");
    }
    free(cross);
    if (rc < 0) {
        keys_fini(&k);
        return rc;
    }
    memcpy(k.secret, keys->secret, sizeof(k.secret));
    *ret = k;
    return 0;
}

char *keys_roots(const struct keys *keys)
{
    int n;
    return join(keys->ca_pem, keys->old_pem, KEYS_OLD_MAX + 1, &n);
}

int keys_issue(const struct keys *keys, const char *name, long life_s, struct authority *ret,
               struct err *err)
{
    const char *const names[] = {name};
    struct authority a = {0};
    int rc = authority_issue(&a, keys->ca_pem, keys->ca_key_pem, names, 1, life_s, err);
    if (rc < 0)
        return rc;
    size_t n = strlen(a.cert_pem), more = strlen(keys->cross_pem);
    char *chain = realloc(a.cert_pem, n + more + 1);
    if (!chain) {
        authority_fini(&a);
        return err_set(err, ENOMEM, "no memory for a certificate");
    }
    memcpy(chain + n, keys->cross_pem, more + 1);
    a.cert_pem = chain;
    *ret = a;
    return 0;
}

/* ---- in a Secret ----------------------------------------------------------------------------- */

json_t *keys_pack(const struct keys *keys)
{
    json_t *j = json_object();
    json_put(&j, "ca.crt", json_bytes(keys->ca_pem, strlen(keys->ca_pem)));
    json_put(&j, "ca.key", json_bytes(keys->ca_key_pem, strlen(keys->ca_key_pem)));
    json_put(&j, "secret", json_bytes(keys->secret, sizeof(keys->secret)));
    if (keys->old_pem[0])
        json_put(&j, "old.crt", json_bytes(keys->old_pem, strlen(keys->old_pem)));
    if (keys->cross_pem[0])
        json_put(&j, "cross.crt", json_bytes(keys->cross_pem, strlen(keys->cross_pem)));
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
    const char *ca = "", *ca_key = "", *secret = "", *old = "", *cross = "";
    size_t len = 0;
    struct keys k = {0};
    struct authority tried = {0};
    int rc = json_expect(data, "the Secret of the operator's keys", err,
                         "{s:s, s:s, s:s, s?s, s?s}", "ca.crt", &ca, "ca.key", &ca_key, "secret",
                         &secret, "old.crt", &old, "cross.crt", &cross);
    if (rc == 0)
        rc = take_pem(ca, "ca.crt", &k.ca_pem, err);
    if (rc == 0)
        rc = take_pem(ca_key, "ca.key", &k.ca_key_pem, err);
    if (rc == 0)
        rc = take_pem(old, "old.crt", &k.old_pem, err);
    if (rc == 0)
        rc = take_pem(cross, "cross.crt", &k.cross_pem, err);
    if (rc == 0)
        rc = json_bytes_read(secret, "secret", k.secret, sizeof(k.secret), &len, err);
    if (rc == 0 && len != sizeof(k.secret))
        rc = err_set(err, EINVAL, "secret: %zu bytes, want %d", len, KEYS_SIZE);
    if (rc == 0)
        rc = keys_issue(&k, "hvd-operator", 0, &tried, err);
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
    free(keys->old_pem);
    free(keys->cross_pem);
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
