/* SPDX-License-Identifier: Apache-2.0
 *
 * rules: known faults and requirements of versions, as data. rules.conf is compiled in; --rules
 * FILE replaces it.
 *
 * A rule is a line of the file:
 *   component | range | conditions | severity | text | fix | reference
 * range: "<2.8.3", ">=2.24 <=2.26.4", "=3.1.3", several ranges joined by " or ". conditions: facts
 * that must hold ("container", "infiniband", "gpus>1", "ucx"), joined by "and"; "-" for none.
 * severity: info, warn, fail. Read once, then const; any thread.
 */
#ifndef HVD_DIAGNOSTICS_RULES_H
#define HVD_DIAGNOSTICS_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/err.h"
#include "diagnostics/check.h"

struct rule {
    const char *component, *range, *conditions, *text, *fix, *reference;
    enum check_status severity;
    int line;
};

struct rules;

/* The compiled-in rules; cannot fail. */
const struct rules *rules_builtin(void);

/* Reads a rules file. -EINVAL with "FILE:12: severity: ..."; the caller frees the rules with
 * rules_destroy(). */
int rules_read(const char *path, struct rules **ret, struct err *err);
int rules_parse(const char *text, size_t len, const char *name, struct rules **ret,
                struct err *err);
void rules_destroy(struct rules *rules);

size_t rules_count(const struct rules *rules);
const struct rule *rules_at(const struct rules *rules, size_t i);

/* Evaluates the facts of conditions: returns true when fact holds here ("container", or "gpus>1",
 * which compares the number "gpus"). */
struct rule_facts {
    bool (*holds)(void *arg, const char *fact);
    void *arg;
};

/* Finds the rules that match this version of the component, worst first, up to max; returns how
 * many. A version is dotted numbers; one with a suffix ("rc1", "a1") is older than one without. */
size_t rules_hits(const struct rules *rules, const char *component, const char *version,
                  const struct rule_facts *facts, const struct rule **ret, size_t max);

/* <0, 0, >0. "2.8.4" > "2.8.3"; "4.1" = "4.1.0"; "5.0.0rc2" < "5.0.0". */
int version_compare(const char *a, const char *b);

#endif
