/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials: provides the Authorization header. A token file is read again each minute and after
 * a 401. A plugin is run again before its credential expires and after a 401. Owned by api.c, on
 * its loop.
 */
#ifndef HVD_OPERATOR_API_CREDENTIALS_H
#define HVD_OPERATOR_API_CREDENTIALS_H

#include <stdbool.h>

#include "core/base/loop.h"
#include "operator/api/access.h"

struct credentials;

/* The plugin has finished. err: why it failed, or NULL. cert and key: a client certificate that it
 * printed, valid during the call, or NULL. */
typedef void credentials_ready_f(void *arg, const char *cert, const char *key,
                                 const struct err *err);

/* access_to must outlive the credentials. */
int credentials_open(struct credentials **ret, struct loop *loop, const struct access *access_to,
                     credentials_ready_f *ready, void *arg, struct err *err);

/* 0: *ret is the header line (NULL: none needed), valid until the next call. 1: the plugin runs,
 * and ready is called when it has finished, never from within this call. Negative: no credential.
 */
int credentials_header(struct credentials *c, const char **ret, struct err *err);

/* A request with the credential of that serial got 401. True: there may be a newer credential, call
 * credentials_header() again. */
bool credentials_refused(struct credentials *c, unsigned serial);

/* A number that rises each time the credential changes. */
unsigned credentials_serial(const struct credentials *c);

/* NULL is fine. */
void credentials_close(struct credentials *c);

#endif
