/* SPDX-License-Identifier: Apache-2.0
 *
 * exec: runs a credential plugin (client.authentication.k8s.io), without a shell, and parses what
 * it prints. Called by credentials.c, on its loop.
 */
#ifndef HVD_OPERATOR_API_EXEC_H
#define HVD_OPERATOR_API_EXEC_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/loop.h"
#include "operator/api/access.h"

#define EXEC_MAX_MS 60000 /* a plugin that takes longer is killed, with its process group */

struct exec_credential {
    char *token;              /* or NULL */
    char *cert_pem, *key_pem; /* or NULL */
    int64_t expires_us;       /* since 1970; INT64_MAX: it does not expire */
};

void exec_credential_fini(struct exec_credential *c);

/* Parses a plugin's output. -EINVAL: no ExecCredential of api_version, or one without a
 * credential. */
int exec_parse(const char *text, size_t len, const char *api_version, struct exec_credential *ret,
               struct err *err);

struct exec_run;

/* The callee takes the contents of ret. ret NULL: err says why. Called once, not after
 * exec_cancel(). */
typedef void exec_done_f(void *arg, struct exec_credential *ret, const struct err *err);

/* Starts the plugin. access_to is only read during this call. */
int exec_start(struct exec_run **ret, struct loop *loop, const struct access *access_to,
               exec_done_f *done, void *arg, struct err *err);

/* Kills the plugin and frees run. NULL is fine. */
void exec_cancel(struct exec_run *run);

#endif
