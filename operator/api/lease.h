/* SPDX-License-Identifier: Apache-2.0
 *
 * lease: a Lease of coordination.k8s.io: parsed, and written. Pure. Called by election.c.
 */
#ifndef HVD_OPERATOR_API_LEASE_H
#define HVD_OPERATOR_API_LEASE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/json/json.h"

struct lease {
    char holder[256];  /* "": nobody */
    char version[128]; /* resourceVersion */
    int64_t duration_s;
    int64_t transitions;
    int64_t acquired_us, renewed_us; /* the holder's clock; only passed on, never compared */
};

int lease_parse(const char *text, size_t len, struct lease *ret, struct err *err);

/* The object, with metadata.resourceVersion unless version is "": a write that fails with 409 when
 * somebody was faster. free() it; NULL when memory is out. */
char *lease_body(const struct lease *l, const char *namespace, const char *name);

#endif
