/* SPDX-License-Identifier: Apache-2.0
 *
 * signals: see signals.h.
 */
#include "operator/objects/signals.h"

#include <stdio.h>
#include <string.h>

static const char *const words[] = {
    [SIGNAL_NONE] = "none",       [SIGNAL_NOTE] = "note",   [SIGNAL_EVICT] = "evict",
    [SIGNAL_REPLACE] = "replace", [SIGNAL_LEAVE] = "leave",
};

static const struct {
    const char *key, *value;
    enum signal_action action;
} built_in[] = {
    {SIGNAL_CORDON, "", SIGNAL_EVICT},
    {"ToBeDeletedByClusterAutoscaler", "", SIGNAL_LEAVE},
    {"DeletionCandidateOfClusterAutoscaler", "",
     SIGNAL_NOTE}, /* the autoscaler may change its mind */
    {"karpenter.sh/disrupted", "", SIGNAL_LEAVE},
    {"node.kubernetes.io/out-of-service", "", SIGNAL_LEAVE},
    {"aws-node-termination-handler/spot-itn", "", SIGNAL_LEAVE}, /* two minutes before the end */
    {"aws-node-termination-handler/scheduled-maintenance", "", SIGNAL_LEAVE},
    {"aws-node-termination-handler/asg-lifecycle-termination", "", SIGNAL_LEAVE},
    {"aws-node-termination-handler/rebalance-recommendation", "", SIGNAL_REPLACE},
    {"cloud.google.com/impending-node-termination", "", SIGNAL_LEAVE},
    {"cloud.google.com/active-node-maintenance", "ONGOING", SIGNAL_LEAVE},
};

/* The entry for that taint or label; NULL: none. */
static struct signal *find(struct signals *s, const char *key, const char *value)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->all[i].key, key) == 0 && strcmp(s->all[i].value, value) == 0)
            return &s->all[i];
    return NULL;
}

void signals_default(struct signals *ret)
{
    *ret = (struct signals){0};
    for (size_t i = 0; i < sizeof(built_in) / sizeof(built_in[0]); i++) {
        struct signal *one = &ret->all[ret->n++];
        snprintf(one->key, sizeof(one->key), "%s", built_in[i].key);
        snprintf(one->value, sizeof(one->value), "%s", built_in[i].value);
        one->action = built_in[i].action;
    }
}

static int take_entry(struct signals *s, const char *text, size_t len, struct err *err)
{
    char entry[sizeof(s->all[0].key) + sizeof(s->all[0].value) + 16];
    struct signal one = {.action = SIGNAL_NONE};
    snprintf(entry, sizeof(entry), "%.*s", (int)(len < sizeof(entry) ? len : 0), text);
    char *colon = strrchr(entry, ':'), *equals = strchr(entry, '=');
    size_t i, n = sizeof(words) / sizeof(words[0]);
    for (i = 0; colon && i < n && strcmp(colon + 1, words[i]) != 0; i++)
        continue;
    if (!colon || i == n || colon == entry || equals == entry || (equals && equals + 1 >= colon))
        return err_set(err, EINVAL,
                       "%.*s: want KEY:ACTION for a taint or KEY=VALUE:ACTION for a label; ACTION "
                       "is none, note, evict, replace or leave",
                       (int)(len < 100 ? len : 100), text);
    *colon = '\0';
    if (equals)
        *equals = '\0';
    if (strlen(entry) >= sizeof(one.key) || (equals && strlen(equals + 1) >= sizeof(one.value)))
        return err_set(err, EINVAL, "%.60s: longer than a key or value may be", entry);
    memcpy(one.key, entry, strlen(entry));
    if (equals)
        memcpy(one.value, equals + 1, strlen(equals + 1));
    one.action = (enum signal_action)i;
    struct signal *place = find(s, one.key, one.value);
    if (!place && s->n == SIGNALS_MAX)
        return err_set(err, EINVAL, "more than %d entries", SIGNALS_MAX);
    *(place ? place : &s->all[s->n++]) = one;
    return 0;
}

int signals_change(struct signals *s, const char *text, struct err *err)
{
    int rc = 0;
    while (*text && rc == 0) {
        size_t len = strcspn(text, ",");
        if (len > 0)
            rc = take_entry(s, text, len, err);
        text += len + (text[len] == ',');
    }
    return rc;
}

static bool has_taint(const struct node *n, const char *key)
{
    for (int i = 0; i < n->taints.n; i++)
        if (strcmp(n->taints.all[i].key, key) == 0)
            return true;
    return false;
}

static bool has_label(const struct node *n, const char *key, const char *value)
{
    const char *have = labels_get(&n->labels, key);
    return have && strcmp(have, value) == 0;
}

void signals_look(const struct signals *s, const struct node *n, struct node_drain *ret)
{
    *ret = (struct node_drain){.action = SIGNAL_NONE};
    for (int i = 0; n && i < s->n; i++) {
        const struct signal *one = &s->all[i];
        bool cordon = strcmp(one->key, SIGNAL_CORDON) == 0;
        if (one->action <= ret->action)
            continue;
        if (one->value[0] ? !has_label(n, one->key, one->value)
                          : !(cordon ? n->cordoned : has_taint(n, one->key)))
            continue;
        ret->action = one->action;
        if (cordon)
            snprintf(ret->what, sizeof(ret->what), "cordoned");
        else
            snprintf(ret->what, sizeof(ret->what), "%s %s%s%s", one->value[0] ? "label" : "taint",
                     one->key, one->value[0] ? "=" : "", one->value);
    }
}
