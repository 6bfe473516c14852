/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore: reads the coordinator's keys (operator/keys.h) from a Secret in the
 * operator's namespace. The first operator creates the Secret. On the api's loop.
 */
#ifndef HVD_OPERATOR_KEYSTORE_H
#define HVD_OPERATOR_KEYSTORE_H

#include "operator/api/api.h"
#include "operator/keys.h"

#define KEYSTORE_SECRET "hvd-operator-ca"

struct keystore;

/* Calls ready() once, as soon as it has the keys. After a failure it retries with backoff. */
int keystore_open(struct keystore **ret, struct api *api, const char *namespace,
                  void (*ready)(void *arg, const struct keys *keys), void *arg, struct err *err);

/* Why there are no keys yet, "": no error so far. */
const char *keystore_problem(const struct keystore *k);

/* NULL before ready(). */
const struct keys *keystore_keys(const struct keystore *k);

/* NULL is fine. */
void keystore_close(struct keystore *k);

#endif
