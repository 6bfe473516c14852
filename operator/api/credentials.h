/* SPDX-License-Identifier: Apache-2.0
 *
 * credentials: the Authorization header of the next request, kept fresh: a token file is read again
 * each minute and after a refusal, a plugin is run again before its token ends and after a refusal.
 * Owned by api.c, on its loop.
 */
#ifndef HVD_OPERATOR_API_CREDENTIALS_H
#define HVD_OPERATOR_API_CREDENTIALS_H

#include <stdbool.h>

#include "core/base/loop.h"
#include "operator/api/access.h"

struct credentials;

/* What a plugin was run for is there, or err says why not. cert and key: a client certificate that
 * it gave, valid during the call, or NULL. */
typedef void credentials_ready_f(void *arg, const char *cert, const char *key,
                                 const struct err *err);

/* access_to must outlive it. */
int credentials_open(struct credentials **ret, struct loop *loop, const struct access *access_to,
                     credentials_ready_f *ready, void *arg, struct err *err);

/* 0: *ret is the header line, NULL for none, valid until the next call. 1: a plugin runs, ready is
 * called when it has ended (never from within this call). Negative: there is none. */
int credentials_header(struct credentials *c, const char **ret, struct err *err);

/* A request with the credential of that serial was refused (401). True: another may be better, ask
 * for it. */
bool credentials_refused(struct credentials *c, unsigned serial);

/* Counts up each time the credential changes. */
unsigned credentials_serial(const struct credentials *c);

/* NULL is fine. */
void credentials_close(struct credentials *c);

#endif
