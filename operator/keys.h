/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: the operator's certificate authority, which agents trust, and the secret from which the
 * keys of jobs are derived. Both are in one Secret in the operator's namespace (keystore.h).
 */
#ifndef HVD_OPERATOR_KEYS_H
#define HVD_OPERATOR_KEYS_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/err.h"
#include "operator/link/plane_types.h"

#define KEYS_SIZE    32
#define KEYS_JOB_MAX 80 /* bytes of a job's key as text, with NUL */

struct keys {
    char *ca_pem;     /* goes into the environment of pods */
    char *ca_key_pem; /* secret */
    uint8_t secret[KEYS_SIZE];
};

/* Generates new keys. */
int keys_make(struct keys *ret, struct err *err);

/* The "data" of a Secret: ca.crt, ca.key, secret, in base64. NULL: no memory. */
json_t *keys_pack(const struct keys *keys);

/* Parses untrusted bytes. -EINVAL: err names the field, or says what is wrong with the certificate;
 * ret is untouched then. */
int keys_unpack(json_t *data, struct keys *ret, struct err *err);

/* Overwrites the secrets. */
void keys_fini(struct keys *keys);

/* The key of a job as text, for the token file of its pods: an HMAC of the uid. Begins with
 * PLANE_KEY_PREFIX. */
void keys_job(const struct keys *keys, const char *job_uid, char dst[KEYS_JOB_MAX]);

/* The SHA-256 of that text, from which the key cannot be computed. */
void keys_job_hash(const struct keys *keys, const char *job_uid, uint8_t dst[PLANE_HASH_SIZE]);

#endif
