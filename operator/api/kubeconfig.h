/* SPDX-License-Identifier: Apache-2.0
 *
 * kubeconfig: the files that kubectl uses. Called by access.c.
 *
 * Of several files the first that names a cluster, a user, a context or the current context wins,
 * as with kubectl. Paths in a file are relative to it. Fields that we do not know are ignored;
 * those that would need what we do not have (auth-provider) are an error.
 */
#ifndef HVD_OPERATOR_API_KUBECONFIG_H
#define HVD_OPERATOR_API_KUBECONFIG_H

#include <stddef.h>

#include "operator/api/access.h"

/* paths: one path, or with list a list with colons, of which those that do not exist are left out
 * (one must). context: NULL for the current one. *ret is untouched on failure. */
int kubeconfig_load(const char *paths, bool list, const char *context, struct access *ret,
                    struct err *err);

#endif
