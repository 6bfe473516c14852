/* SPDX-License-Identifier: Apache-2.0
 *
 * kubeconfig: the files that kubectl uses. Called by access.c.
 *
 * With several files, the first that has a cluster, user, context or current-context is used for
 * it, as in kubectl. Paths are relative to the file. Unknown fields are ignored; auth-provider,
 * which is not supported, is an error.
 */
#ifndef HVD_OPERATOR_API_KUBECONFIG_H
#define HVD_OPERATOR_API_KUBECONFIG_H

#include <stddef.h>

#include "operator/api/access.h"

/* paths: one path, or with list several with colons between them, of which at least one must exist.
 * context NULL: current-context. *ret is untouched on failure. */
int kubeconfig_load(const char *paths, bool list, const char *context, struct access *ret,
                    struct err *err);

#endif
