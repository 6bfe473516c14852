/* SPDX-License-Identifier: Apache-2.0
 *
 * certificates: see certificates.h.
 */
#include "operator/certificates.h"

#include <stdio.h>

#include "operator/objects/moment.h"

/* Has this part (of six) of a life passed? */
static bool has_passed(int64_t begin, int64_t end, int sixths, int64_t now)
{
    return 6 * (now - begin) >= sixths * (end - begin);
}

bool certificates_due(const struct certificates *c, int64_t now)
{
    return has_passed(c->issued, c->until, 4, now);
}

bool certificates_ca_due(const struct certificates *c, int64_t now)
{
    return now - c->ca_issued >= c->ca_s || has_passed(c->ca_issued, c->ca_until, 4, now);
}

enum certificates_state certificates_judge(const struct certificates *c, int64_t now, char *dst,
                                           size_t size)
{
    char until[MOMENT_SIZE], ca_until[MOMENT_SIZE];
    moment_write(c->until * MOMENT_S, until);
    moment_write(c->ca_until * MOMENT_S, ca_until);
    dst[0] = '\0';
    if (*c->problem && has_passed(c->issued, c->until, 5, now)) {
        snprintf(
            dst, size,
            "the certificate of hvd-plane expires at %s and could not be renewed: %.300s. From "
            "then on no agent can connect, and new pods do not train. Restart the operator; if "
            "that does not help, stop the jobs, delete the Secret with its keys, and restart "
            "it again",
            until, c->problem);
        return CERTIFICATES_STUCK;
    }
    if (*c->ca_problem && certificates_ca_due(c, now)) {
        snprintf(dst, size,
                 "the certificate authority could not be replaced, and is tried again: %.400s. It "
                 "expires at %s, and from then on no agent can connect",
                 c->ca_problem, ca_until);
        return CERTIFICATES_CA_STUCK;
    }
    return CERTIFICATES_FINE;
}

const char *certificates_reason(enum certificates_state state)
{
    static const char *const reasons[] = {[CERTIFICATES_FINE] = "",
                                          [CERTIFICATES_CA_STUCK] = "AuthorityNotReplaced",
                                          [CERTIFICATES_STUCK] = "CertificateNotRenewed"};
    return reasons[state];
}
