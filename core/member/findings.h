/* SPDX-License-Identifier: Apache-2.0
 *
 * findings: what a host's agent found wrong with it: the body of POST /v1/findings, and the list of
 * those that stand. Pure; the list has one owner (a roster's agent, or an agent that serves
 * /metrics), one thread.
 *
 * A finding is known by its source and id. It stands until the same one comes with cleared set.
 */
#ifndef HVD_MEMBER_FINDINGS_H
#define HVD_MEMBER_FINDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/member/protocol.h"

#define FINDINGS_MAX 512 /* that stand on one host, and in one body */

enum finding_status { FINDING_WARN, FINDING_FAIL, FINDING_STATUSES };

struct finding {
    char source[16]; /* preflight, watch */
    char id[48];     /* the check's: shm-size */
    char code[16];   /* HVD3001 */
    enum finding_status status;
    bool cleared;
    char summary[512]; /* one line with the figures */
    char fix[512];     /* what to type; "": nothing */
    bool told;         /* the owner's: was shown; not in the body */
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

/* As protocol.h's: a fresh text or NULL; -EINVAL with the field, ret untouched. */
char *findings_write(const struct findings_body *body);
int findings_read(const char *text, size_t len, struct findings_body *ret, struct err *err);
void findings_body_fini(struct findings_body *body);

/* Adds a copy at the end. -ENOMEM, -E2BIG beyond FINDINGS_MAX. */
int findings_add(struct findings *f, const struct finding *one);

/* The same in place of one with its source and id; a cleared one is taken out. One that says the
 * same as before keeps told. */
int findings_apply(struct findings *f, const struct finding *one);
void findings_fini(struct findings *f);

const char *finding_status_name(enum finding_status status); /* "warn" */

#endif
