/* SPDX-License-Identifier: Apache-2.0
 *
 * selector: a LabelSelector, or a term of a node affinity. Pure; the caller of selector_parse()
 * calls selector_fini().
 */
#ifndef HVD_OPERATOR_OBJECTS_SELECTOR_H
#define HVD_OPERATOR_OBJECTS_SELECTOR_H

#include <stdbool.h>

#include "operator/objects/labels.h"

enum selector_op {
    SELECTOR_IN,
    SELECTOR_NOT_IN,
    SELECTOR_EXISTS,
    SELECTOR_MISSING,
    SELECTOR_GREATER, /* only in a node affinity */
    SELECTOR_LESS,    /* only in a node affinity */
    SELECTOR_ANY      /* an unknown operator, which counts as fulfilled */
};

struct requirement {
    enum selector_op op;
    char *key;
    char *values; /* texts, each with its NUL; a value may be empty */
    size_t len;   /* bytes of values */
};

struct selector {
    bool nothing; /* selects nothing: there is no selector */
    int n;
    struct requirement *all; /* n of them, all must be fulfilled */
};

/* j NULL or null: selects nothing. Parts of an unknown shape are ignored, so the selector may
 * select more. -ENOMEM: *ret is untouched. */
int selector_parse(json_t *j, struct selector *ret);
void selector_fini(struct selector *s);

/* known: false for a key whose value nobody knows; a requirement of it counts as fulfilled. NULL:
 * all are known. */
bool selector_matches(const struct selector *s, const struct labels *labels,
                      bool (*known)(const char *key));

#endif
