/* SPDX-License-Identifier: Apache-2.0
 *
 * keystore: the keys of the coordinator (operator/coordinator/keys.h) in a Secret of the operator's
 * namespace: read, or made by the first operator that needs them. On the api's loop.
 */
#ifndef HVD_OPERATOR_KEYSTORE_H
#define HVD_OPERATOR_KEYSTORE_H

#include "operator/api/api.h"
#include "operator/coordinator/keys.h"

#define KEYSTORE_SECRET "hvd-operator-ca"

struct keystore;

/* ready: they are there, once. Until then it tries again, at longer and longer times. */
int keystore_open(struct keystore **ret, struct api *api, const char *namespace,
                  void (*ready)(void *arg, const struct keys *keys), void *arg, struct err *err);

/* Why they are not there yet, "" when nothing went wrong. */
const char *keystore_problem(const struct keystore *k);

/* NULL before they are there. */
const struct keys *keystore_keys(const struct keystore *k);

/* NULL is fine. */
void keystore_close(struct keystore *k);

#endif
