/* SPDX-License-Identifier: Apache-2.0
 *
 * keys: what the operator's plane proves itself with, and what agents prove themselves with: a
 * certificate authority, made once, and a secret that the keys of jobs are derived from. Both stand
 * in one Secret in the operator's namespace, which the driver makes or reads.
 */
#ifndef HVD_OPERATOR_COORDINATOR_KEYS_H
#define HVD_OPERATOR_COORDINATOR_KEYS_H

#include <jansson.h>
#include <stdint.h>

#include "core/base/err.h"

#define KEYS_AUDIENCE "hvd-operator" /* of projected service account tokens */
#define KEYS_SIZE     32

#define KEYS_JOB_PREFIX "hvd1." /* no service account token begins so */
#define KEYS_JOB_MAX    80      /* of a job's key as text, with NUL */

struct keys {
    char *ca_pem;     /* what pods trust; goes into their environment */
    char *ca_key_pem; /* secret */
    uint8_t secret[KEYS_SIZE];
};

/* Fresh ones. */
int keys_make(struct keys *ret, struct err *err);

/* The "data" of a Secret: ca.crt, ca.key, secret, in base64. NULL: no memory. */
json_t *keys_pack(const struct keys *keys);

/* Foreign bytes: -EINVAL with the field, or what is wrong with the certificate; ret is untouched
 * then. */
int keys_unpack(json_t *data, struct keys *ret, struct err *err);

int keys_copy(struct keys *ret, const struct keys *keys);

/* Wipes them. */
void keys_fini(struct keys *keys);

/* The key of a job, as text: what stands in the token file of its pods. */
void keys_job(const struct keys *keys, const char *job_uid, char dst[KEYS_JOB_MAX]);

#endif
