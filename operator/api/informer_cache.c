/* SPDX-License-Identifier: Apache-2.0
 *
 * informer_cache: adds and removes objects in an informer's cache, and calls changed().
 */
#include <stdio.h>

#include "core/base/hash.h"
#include "core/base/log.h"
#include "operator/api/informer_private.h"

#define KEY_MAX 512 /* a namespace has at most 63 bytes, a name 253 */

static int key_of(const struct event_meta *meta, char key[KEY_MAX], struct err *err)
{
    int n =
        snprintf(key, KEY_MAX, "%s%s%s", meta->namespace, *meta->namespace ? "/" : "", meta->name);
    return n < KEY_MAX ? 0 : err_set(err, EINVAL, "a name of %d bytes is too long", n);
}

static void tell(struct informer *inf, const char *key, const void *before, const void *after)
{
    inf->config.changed(inf->config.arg, key, before, after);
}

static void forget(struct informer *inf, struct store_entry *e)
{
    if (e->item) {
        tell(inf, e->key, e->item, NULL);
        inf->config.destroy(e->item);
    }
    store_remove(&inf->store, e);
}

/* Puts the new item into the entry and calls changed(). */
static void replace(struct informer *inf, struct store_entry *e, void *item, uint64_t uid)
{
    void *before = e->item;
    e->item = item;
    if (before && e->uid != uid) { /* deleted and created again between two events */
        e->item = NULL;
        tell(inf, e->key, before, NULL);
        inf->config.destroy(before);
        e->item = item;
        before = NULL;
    }
    e->uid = uid;
    tell(inf, e->key, before, item);
    if (before)
        inf->config.destroy(before);
}

int informer_put(struct informer *inf, json_t *object, struct err *err)
{
    struct event_meta meta;
    char key[KEY_MAX];
    void *item = NULL;
    struct err why = {0};
    int rc = event_meta(object, &meta, err);
    if (rc == 0)
        rc = key_of(&meta, key, err);
    if (rc < 0)
        return rc;
    uint64_t uid = hash_str(meta.uid), version = hash_str(meta.version);
    struct store_entry *e = store_find(&inf->store, key);
    if (e && e->uid == uid && e->version == version) {
        e->round = inf->round;
        return 0;
    }
    rc = inf->config.parse(inf->config.arg, object, &item, &why);
    if (rc == -ENOMEM)
        return err_set(err, ENOMEM, "%s", why.msg);
    if (rc < 0) {
        inf->counts.unread++;
        log_debug("%s %s cannot be parsed and is not in the cache: %s", inf->config.resource.plural,
                  key, why.msg);
        if (e)
            forget(inf, e);
        return 0;
    }
    if (!e)
        e = store_add(&inf->store, key);
    if (!e) {
        inf->config.destroy(item);
        return err_set(err, ENOMEM, "no memory for %s %s", inf->config.resource.plural, key);
    }
    e->version = version;
    e->round = inf->round;
    replace(inf, e, item, uid);
    return 0;
}

int informer_drop(struct informer *inf, json_t *object, struct err *err)
{
    struct event_meta meta;
    char key[KEY_MAX];
    int rc = event_meta(object, &meta, err);
    if (rc == 0)
        rc = key_of(&meta, key, err);
    if (rc < 0)
        return rc;
    struct store_entry *e = store_find(&inf->store, key);
    if (e)
        forget(inf, e);
    return 0;
}

void informer_sweep(struct informer *inf)
{
    struct store_entry *e = store_next(&inf->store, NULL);
    while (e) {
        struct store_entry *next = store_next(&inf->store, e);
        if (e->round != inf->round)
            forget(inf, e);
        e = next;
    }
}

void informer_cache_fini(struct informer *inf)
{
    for (struct store_entry *e = store_next(&inf->store, NULL); e; e = store_next(&inf->store, e))
        if (e->item)
            inf->config.destroy(e->item);
    store_fini(&inf->store);
}
