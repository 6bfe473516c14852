/* SPDX-License-Identifier: Apache-2.0
 *
 * lease: parses and writes a Lease (coordination.k8s.io). Pure. Called by election.c.
 */
#ifndef HVD_OPERATOR_API_LEASE_H
#define HVD_OPERATOR_API_LEASE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/json/json.h"

struct lease {
    char holder[256];  /* "": nobody holds it */
    char version[128]; /* resourceVersion */
    char uid[64];      /* metadata.uid, "": it is too long */
    int64_t duration_s;
    int64_t transitions;
    int64_t acquired_us, renewed_us; /* on the holder's clock; never compared */
};

int lease_parse(const char *text, size_t len, struct lease *ret, struct err *err);

/* The Lease as JSON. With a version it has metadata.resourceVersion, so that the update fails with
 * 409 if the lease has changed. The caller frees it; NULL: no memory. */
char *lease_body(const struct lease *l, const char *namespace, const char *name);

#endif
