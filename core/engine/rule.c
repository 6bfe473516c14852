/* SPDX-License-Identifier: Apache-2.0
 *
 * rule: see rule.h.
 */
#include "core/engine/rule.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct own_rule {
    const char *name;
    enum rule_kind kind;
    bool has_number;
} own_rules[] = {
    {"host", RULE_HOST, false}, {"every", RULE_EVERY, true}, {"blocks", RULE_BLOCKS, true}};

#define OWN_RULES (sizeof(own_rules) / sizeof(own_rules[0]))

static const struct own_rule *find_own(const char *name)
{
    for (size_t i = 0; i < OWN_RULES; i++)
        if (strcmp(own_rules[i].name, name) == 0)
            return &own_rules[i];
    return NULL;
}

/* How many bytes at the beginning of the text can be those of a name. */
static size_t name_length(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789_.-";
    return strspn(text, allowed);
}

int rule_check_name(const char *name, struct err *err)
{
    size_t n = name ? strnlen(name, HVD_MAX_NAME + 1) : 0;
    if (n == 0 || n > HVD_MAX_NAME || name_length(name) < n)
        return err_set(err, EINVAL,
                       "the name of a rule has 1 to %d letters, digits, '_', '.' and '-'",
                       HVD_MAX_NAME);
    return find_own(name)
               ? err_set(err, EINVAL, "'%s' is a rule of the library: choose another name", name)
               : 0;
}

/* " 12"; 0: it is something else. */
static int read_number(const char *text)
{
    long n = 0;
    if (text[0] != ' ' || text[1] < '1' || text[1] > '9')
        return 0;
    for (text++; *text >= '0' && *text <= '9' && n <= INT_MAX; text++)
        n = 10 * n + (*text - '0');
    return *text || n > INT_MAX ? 0 : (int)n;
}

static int no_rule(const char *text, struct err *err)
{
    return err_set(err, EINVAL,
                   "'%.80s' is no rule: it is \"host\", \"every K\", \"blocks K\", or the name of "
                   "a function, which K may follow (a number from 1 to %d)",
                   text ? text : "", INT_MAX);
}

int rule_parse(const char *text, struct rule *ret, struct err *err)
{
    size_t length = text ? strnlen(text, HVD_MAX_NAME + 1) : 0;
    if (length == 0 || length > HVD_MAX_NAME)
        return no_rule(text, err);
    size_t n = name_length(text);
    struct rule rule = {.kind = RULE_FUNCTION, .k = text[n] ? read_number(text + n) : 0};
    memcpy(rule.name, text, n);
    const struct own_rule *own = find_own(rule.name);
    if (n == 0 || (text[n] && rule.k == 0) || (own && own->has_number != (rule.k > 0)))
        return no_rule(text, err);
    if (own)
        rule.kind = own->kind;
    *ret = rule;
    return 0;
}

static int divide_by_function(const struct rule *rule, const struct rule_function *f,
                              const struct hvd_roster *roster, int *ret_groups, struct err *err)
{
    for (int r = 0; r < roster->size; r++) {
        ret_groups[r] = f->call(roster, r, rule->k, f->arg);
        if (ret_groups[r] < -1)
            return err_set(
                err, EINVAL,
                "the rule '%.80s' has failed for rank %d: it returned %d, and groups are "
                "numbered from 0 to %d (-1: none)",
                rule->name, r, ret_groups[r], HVD_GROUP_MAX);
        if (ret_groups[r] > HVD_GROUP_MAX)
            return err_set(err, EINVAL,
                           "the rule '%.80s' has put rank %d into group %d: groups are numbered "
                           "from 0 to %d, and -1 is none",
                           rule->name, r, ret_groups[r], HVD_GROUP_MAX);
    }
    return 0;
}

int rule_divide(const struct rule *rule, const struct rule_function *function,
                const struct hvd_roster *roster, int *ret_groups, struct err *err)
{
    if (rule->kind == RULE_FUNCTION)
        return divide_by_function(rule, function, roster, ret_groups, err);
    for (int r = 0; r < roster->size; r++)
        ret_groups[r] = rule->kind == RULE_HOST    ? roster->hosts[r]
                        : rule->kind == RULE_EVERY ? r % rule->k
                                                   : r / rule->k;
    return 0;
}

int rule_group_of(const int *groups, int n, int rank, int *ret_ranks)
{
    int size = 0;
    if (groups[rank] < 0)
        return 0;
    for (int r = 0; r < n; r++)
        if (groups[r] == groups[rank])
            ret_ranks[size++] = r;
    return size;
}
