/* SPDX-License-Identifier: Apache-2.0
 *
 * quota: a projection of a ResourceQuota: how many further workers of a job it admits. Pure. The
 * caller of quota_parse() calls quota_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_QUOTA_H
#define HVD_OPERATOR_OBJECTS_QUOTA_H

#include "operator/objects/demand.h"

/* A limited amount: of "pods", "requests.NAME" or "limits.NAME". Others do not concern pods. */
struct quota_line {
    char key[112];
    resources_sum hard, used; /* in the unit of the resource */
};

struct quota {
    char namespace[64], name[256];
    int n;
    struct quota_line *lines; /* owned */
    json_t *scopes;           /* owned list of {scopeName, operator, values}; NULL: all pods */
};

/* Amounts that cannot be read are ignored: the API server enforces the quota in any case. -EINVAL:
 * the object has no name. -ENOMEM. *ret is untouched on failure. */
int quota_parse(json_t *j, struct quota *ret, struct err *err);
void quota_fini(struct quota *q);

/* How many further workers q admits beside what is used, at most limit; ret_line: the line that
 * limits them, untouched if none does. Quotas whose scopes do not select the worker admit limit. */
int quota_admits(const struct quota *q, const struct demand *d, int limit,
                 const struct quota_line **ret_line);

/* Counts n workers as used. */
void quota_take(struct quota *q, const struct demand *d, int n);

/* The first line that never admits n workers, also if nothing is used. NULL: none. */
const struct quota_line *quota_never(const struct quota *q, const struct demand *d, int n);

/* Could `after` admit pods that `before` refuses? after NULL: the quota was deleted. */
bool quota_gives(const struct quota *before, const struct quota *after);

/* Writes "quota compute: requests.nvidia.com/gpu 8 asked, 2 of 16 left" for want workers. min: also
 * says that the job can never start if the line never admits so many workers; 0: does not. */
void quota_explain(const struct quota *q, const struct quota_line *line, const struct demand *d,
                   int want, int min, char *dst, size_t size);

#endif
