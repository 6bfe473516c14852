/* SPDX-License-Identifier: Apache-2.0
 *
 * findings: what the doctor found wrong with a host, as its agent reports it: the body of POST
 * /v1/findings, and the list of current findings. Pure. A list has one owner (a roster's agent, or
 * an agent that serves /metrics), one thread.
 *
 * A finding is identified by its source and id. It stays in the list until the same source and id
 * come with cleared set.
 */
#ifndef HVD_MEMBER_FINDINGS_H
#define HVD_MEMBER_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/member/protocol.h"

#define FINDINGS_MAX 512 /* current findings of one host; also findings in one body */

enum finding_status { FINDING_WARN, FINDING_FAIL, FINDING_STATUSES };

struct finding {
    char source[16]; /* preflight, watch */
    char id[48];     /* id of the check, such as shm-size */
    char code[16];   /* HVD3001 */
    enum finding_status status;
    bool cleared;
    char summary[512]; /* one line with the figures */
    char fix[512];     /* what the user can type to fix it; "": nothing */
    bool told;         /* the owner has shown the finding to the user; not in the body */
};

struct findings {
    int n, cap;
    struct finding *list; /* owned; zero-initialized: empty */
};

struct findings_body {
    char agent[MEMBER_NAME_MAX];
    uint64_t seq;
    struct findings findings;
};

/* As in protocol.h: write returns a text that the caller frees, or NULL; read returns -EINVAL with
 * the field in err and leaves ret unchanged. */
char *findings_write(const struct findings_body *body);
int findings_read(const char *text, size_t len, struct findings_body *ret, struct err *err);
void findings_body_fini(struct findings_body *body);

/* Adds a copy at the end. -ENOMEM, -E2BIG beyond FINDINGS_MAX. */
int findings_add(struct findings *f, const struct finding *one);

/* Like findings_add(), but replaces a finding with the same source and id, or removes it when `one`
 * is cleared. A replaced finding keeps told unless it got worse. */
int findings_apply(struct findings *f, const struct finding *one);
void findings_fini(struct findings *f);

const char *finding_status_name(enum finding_status status); /* "warn" */

#endif
