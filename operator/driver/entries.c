/* SPDX-License-Identifier: Apache-2.0
 *
 * entries: see entries.h.
 */
#include "operator/driver/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 512

void entries_init(struct entries *all, void *owner)
{
    *all = (struct entries){.owner = owner};
    list_init(&all->due);
}

struct entry *entries_find(const struct entries *all, const char *namespace, const char *name)
{
    char key[KEY_MAX];
    snprintf(key, sizeof(key), "%s/%s", namespace, name);
    const struct store_entry *at = store_find(&all->table, key);
    return at ? at->item : NULL;
}

struct entry *entries_make(struct entries *all, const char *namespace, const char *name)
{
    char key[KEY_MAX];
    snprintf(key, sizeof(key), "%s/%s", namespace, name);
    struct store_entry *at = store_find(&all->table, key);
    if (at)
        return at->item;
    struct entry *e = calloc(1, sizeof(*e));
    at = e ? store_add(&all->table, key) : NULL;
    if (!at) {
        free(e);
        return NULL;
    }
    e->key = at->key;
    e->owner = all->owner;
    e->due = ENTRY_NEVER;
    list_init(&e->node);
    list_init(&e->dry_run.turn);
    at->item = e;
    return e;
}

struct entry *entries_next(const struct entries *all, const struct entry *e)
{
    const struct store_entry *at = e ? store_find(&all->table, e->key) : NULL;
    at = store_next(&all->table, at);
    return at ? at->item : NULL;
}

static void entry_free(struct entry *e)
{
    list_remove(&e->node);
    list_remove(&e->dry_run.turn);
    api_cancel(e->conflict_call);
    api_cancel(e->key_call);
    api_cancel(e->dry_run.call);
    verdict_unref(e->dry_run.verdict);
    entry_forget_budget(e);
    entry_forget_gang(e);
    entry_forget_admission(e);
    expectations_fini(&e->expectations);
    items_pod_destroy(e->conflict);
    free(e->problem);
    free(e->pods);
    free(e);
}

void entries_drop(struct entries *all, struct entry *e)
{
    if (e->job || e->npods > 0 || e->apply || e->dry_run.call)
        return;
    store_remove(&all->table, store_find(&all->table, e->key));
    entry_free(e);
}

void entries_due(struct entries *all, struct entry *e, uint64_t at)
{
    if (at >= e->due)
        return;
    if (e->due == ENTRY_NEVER)
        list_append(&all->due, &e->node);
    e->due = at;
}

void entries_not_due(struct entry *e)
{
    list_remove(&e->node);
    e->due = ENTRY_NEVER;
}

int entry_add_pod(struct entry *e, struct pod_item *pod)
{
    if (e->npods == e->cap) {
        int cap = e->cap ? 2 * e->cap : 4;
        struct pod_item **grown = realloc(e->pods, (size_t)cap * sizeof(struct pod_item *));
        if (!grown)
            return -ENOMEM;
        e->pods = grown;
        e->cap = cap;
    }
    pod->place = e->npods;
    e->pods[e->npods++] = pod;
    return 0;
}

static bool has_pod(const struct entry *e, const struct pod_item *pod)
{
    return pod->place >= 0 && pod->place < e->npods && e->pods[pod->place] == pod;
}

void entry_remove_pod(struct entry *e, const struct pod_item *pod)
{
    if (!has_pod(e, pod))
        return;
    struct pod_item *last = e->pods[--e->npods];
    e->pods[pod->place] = last;
    last->place = pod->place;
}

void entry_replace_pod(struct entry *e, const struct pod_item *before, struct pod_item *after)
{
    if (!has_pod(e, before)) {
        entry_add_pod(e, after);
        return;
    }
    after->place = before->place;
    e->pods[after->place] = after;
}

void entry_note_problem(struct entry *e, const char *text, bool group_taken)
{
    free(e->problem);
    e->problem = text ? strdup(text) : NULL;
    e->group_taken = e->problem && group_taken;
}

void entry_forget_gang(struct entry *e)
{
    e->gang_known = false;
    e->gang = NULL;
    free(e->gang_missing);
    e->gang_missing = NULL;
}

void entry_forget_admission(struct entry *e)
{
    if (e->admission)
        admission_fini(e->admission);
    free(e->admission);
    e->admission = NULL;
}

void entry_forget_budget(struct entry *e)
{
    api_cancel(e->budget_call);
    free(e->budget_problem);
    e->budget_call = NULL;
    e->budget_problem = NULL;
    e->budget_at = e->budget_version = e->budget_since = 0;
}

void entries_fini(struct entries *all)
{
    for (struct store_entry *at = store_next(&all->table, NULL); at;
         at = store_next(&all->table, at))
        entry_free(at->item);
    store_fini(&all->table);
}
