/* SPDX-License-Identifier: Apache-2.0
 *
 * certificates: when the plane's certificate and the certificate authority (CA) are to be replaced,
 * and what is wrong if they were not. Pure. Called by coordination.
 */
#ifndef HVD_OPERATOR_CERTIFICATES_H
#define HVD_OPERATOR_CERTIFICATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Times are in seconds since 1970. */
struct certificates {
    int64_t issued, until;       /* life of the plane's certificate */
    int64_t ca_issued, ca_until; /* life of the CA */
    int ca_s;                    /* the CA is to be replaced after so many seconds */
    /* Why the last attempt to replace it failed, "": it succeeded. */
    const char *problem, *ca_problem;
};

enum certificates_state {
    CERTIFICATES_FINE,
    CERTIFICATES_CA_STUCK, /* the CA is not replaced */
    CERTIFICATES_STUCK,    /* the plane's certificate is not renewed and expires soon */
};

/* Is it time to renew the plane's certificate: after two thirds of its life? */
bool certificates_due(const struct certificates *c, int64_t now);

/* Is it time to replace the CA: after ca_s, or after two thirds of its life? */
bool certificates_ca_due(const struct certificates *c, int64_t now);

/* The state, and for people what it means and what to do; dst is "" in CERTIFICATES_FINE. */
enum certificates_state certificates_judge(const struct certificates *c, int64_t now, char *dst,
                                           size_t size);

/* "CertificateNotRenewed" and so on: the reason of an Event. */
const char *certificates_reason(enum certificates_state state);

#endif
