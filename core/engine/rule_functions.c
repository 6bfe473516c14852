/* SPDX-License-Identifier: Apache-2.0
 *
 * rule_functions: see rule_functions.h.
 */
#include "core/engine/rule_functions.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    struct rule_function f;
    char name[HVD_MAX_NAME + 1];
};

static struct {
    pthread_mutex_t lock;
    struct entry *first; /* never freed: other threads may use a function until the process ends */
} defined = {.lock = PTHREAD_MUTEX_INITIALIZER};

static struct entry *find(const char *name)
{
    struct entry *at = defined.first;
    while (at && strcmp(at->name, name) != 0)
        at = at->next;
    return at;
}

static struct entry *add(const char *name)
{
    struct entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return NULL;
    snprintf(entry->name, sizeof(entry->name), "%s", name);
    entry->next = defined.first;
    defined.first = entry;
    return entry;
}

int rule_function_define(const char *name, struct rule_function f, struct err *err)
{
    int rc = rule_check_name(name, err);
    if (rc == 0 && !f.call)
        rc = err_set(err, EINVAL, "the rule '%s' has no function", name);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&defined.lock);
    struct entry *entry = find(name);
    if (!entry)
        entry = add(name);
    if (entry)
        entry->f = f;
    else
        rc = err_set(err, ENOMEM, "no memory for the rule '%s'", name);
    pthread_mutex_unlock(&defined.lock);
    return rc;
}

int rule_function_find(const char *name, struct rule_function *ret, struct err *err)
{
    pthread_mutex_lock(&defined.lock);
    const struct entry *entry = find(name);
    if (entry)
        *ret = entry->f;
    pthread_mutex_unlock(&defined.lock);
    return entry ? 0
                 : err_set(err, ENOENT,
                           "this rank has no rule '%.80s': every rank defines it with "
                           "hvd_rule_define() (in Python: define_rule()) before hvd_init()",
                           name);
}
