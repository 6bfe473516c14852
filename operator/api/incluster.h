/* SPDX-License-Identifier: Apache-2.0
 *
 * incluster: access from within a pod, by the files of its service account and the environment
 * variables KUBERNETES_SERVICE_HOST and _PORT. Called by access.c; root is "/" except in tests.
 */
#ifndef HVD_OPERATOR_API_INCLUSTER_H
#define HVD_OPERATOR_API_INCLUSTER_H

#include <stdbool.h>

#include "operator/api/access.h"

bool incluster_here(const char *root);

/* *ret is untouched on failure. */
int incluster_load(const char *root, struct access *ret, struct err *err);

#endif
