/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore: reads the coordinator's keys (operator/keys.h) from a Secret in the
 * operator's namespace. The first operator creates the Secret, and the leader replaces the CA in
 * it. On the api's loop.
 */
#ifndef HVD_OPERATOR_KEYSTORE_H
#define HVD_OPERATOR_KEYSTORE_H

#include "operator/api/api.h"
#include "operator/keys.h"

#define KEYSTORE_SECRET "hvd-operator-ca"

struct keystore;

/* Calls ready() as soon as it has the keys, and each time they have been read again or replaced;
 * the keys before are valid until it returns. After a failure it retries with backoff. */
int keystore_open(struct keystore **ret, struct api *api, const char *namespace,
                  void (*ready)(void *arg, const struct keys *keys), void *arg, struct err *err);

/* Reads the Secret again: another operator may have replaced the CA. There are no keys until then.
 */
void keystore_reload(struct keystore *k);

/* Replaces the CA in the Secret; then calls ready(). needed_s: as for keys_rotate(). After a
 * failure the present keys stay: call it again some time later. */
void keystore_rotate(struct keystore *k, int64_t needed_s);

/* Why the last replacement failed, "": it did not, or there was none. */
const char *keystore_rotation_problem(const struct keystore *k);

/* Why there are no keys yet, "": no error so far. */
const char *keystore_problem(const struct keystore *k);

/* NULL before ready(), and after keystore_reload(). */
const struct keys *keystore_keys(const struct keystore *k);

/* NULL is fine. */
void keystore_close(struct keystore *k);

#endif
