/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: the operator's certificate authority, which agents trust, and the secret from which the
 * keys of jobs are derived. Both are in one Secret in the operator's namespace (keystore.h). The CA
 * is replaced each year (keys_rotate); the secret stays. A CA's predecessors are kept as long as a
 * pod needs them.
 */
#ifndef HVD_OPERATOR_KEYS_H
#define HVD_OPERATOR_KEYS_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/member/authority.h"
#include "operator/link/plane_types.h"

#define KEYS_SIZE    32
#define KEYS_JOB_MAX 80 /* bytes of a job's key as text, with NUL */
#define KEYS_OLD_MAX 8  /* predecessors of a CA */

struct keys {
    char *ca_pem;
    char *ca_key_pem; /* secret */
    /* The CA's predecessors, whose keys have been destroyed, and the certificates that join each of
     * them to the next CA; newest first, "": none. The latter are part of the server's chain, for
     * pods that were made under a predecessor. */
    char *old_pem, *cross_pem;
    uint8_t secret[KEYS_SIZE];
};

/* Generates new keys. */
int keys_make(struct keys *ret, struct err *err);

/* Makes a new CA, which the present one signs, and keeps the secret. The present CA's key is not in
 * the result. Pods made under the present CA accept the new one until the present one expires. The
 * result has the present CA and the predecessors that were replaced at or after needed_s (seconds
 * since 1970) as predecessors: no pod that was created before that needs them. -ENOSPC: more than
 * KEYS_OLD_MAX; err says what to do. */
int keys_rotate(const struct keys *keys, int64_t needed_s, struct keys *ret, struct err *err);

/* Issues a server certificate: the chain and its key, for life_s seconds. -EINVAL: the CA has
 * expired. The caller frees it with authority_fini(). */
int keys_issue(const struct keys *keys, const char *name, long life_s, struct authority *ret,
               struct err *err);

/* What goes into the environment of pods: the CA and its predecessors, because GnuTLS checks a
 * chain up to its last certificate. The caller frees it. NULL: no memory. */
char *keys_roots(const struct keys *keys);

/* The "data" of a Secret: ca.crt, ca.key, secret, and after a rotation old.crt and cross.crt, in
 * base64. NULL: no memory. */
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
