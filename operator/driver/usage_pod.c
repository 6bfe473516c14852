/* SPDX-License-Identifier: Apache-2.0
 *
 * usage_pod: see usage.h and usage_private.h.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "operator/driver/usage_private.h"

/* An amount that does not fit is more than any node has. */
static int64_t stored(resources_sum amount)
{
    return amount > QUANTITY_MAX ? QUANTITY_MAX : (int64_t)amount;
}

static struct usage_pod *pack(const struct resources *r)
{
    size_t n = 2 * r->n, k = 0;
    for (int i = 0; i < RESOURCES_BASE; i++)
        n += r->amount[i] != 0;
    struct usage_pod *p = calloc(1, sizeof(*p) + n * sizeof(p->amounts[0]));
    if (!p)
        return NULL;
    for (int i = 0; i < RESOURCES_BASE; i++) {
        if (r->amount[i] == 0)
            continue;
        p->base |= (uint8_t)(1u << i);
        p->amounts[k++] = stored(r->amount[i]);
    }
    p->others = (uint16_t)r->n;
    for (size_t i = 0; i < r->n; i++) {
        memcpy(&p->amounts[k++], &r->others[i].kind, sizeof(uint64_t));
        p->amounts[k++] = stored(r->others[i].amount);
    }
    list_init(&p->link);
    return p;
}

static struct usage_more *make_more(const struct pod *pod)
{
    struct usage_more *more = calloc(1, sizeof(*more));
    if (!more)
        return NULL;
    list_init(&more->link);
    more->anti = pod->anti ? strdup(pod->anti) : NULL;
    if ((pod->anti && !more->anti) || hostports_add(&more->ports, &pod->ports) < 0) {
        free(more->anti);
        free(more);
        return NULL;
    }
    return more;
}

uint64_t usage_owner(const char *uid)
{
    return *uid ? hash_str(uid) : 0;
}

struct usage_pod *usage_pod_make(const struct pod *pod)
{
    static const struct resources nothing;
    bool uses = pod->node && !pod_finished(pod);
    struct usage_pod *p = pack(uses ? &pod->requests : &nothing);
    if (!p || !uses)
        return p;
    bool more = pod->anti || pod->ports.n > 0;
    p->owner = usage_owner(pod->owner);
    p->node = strdup(pod->node);
    if (!p->node || (more && !(p->more = make_more(pod)))) {
        usage_pod_destroy(p);
        return NULL;
    }
    return p;
}

void usage_pod_destroy(struct usage_pod *p)
{
    if (!p)
        return;
    if (p->more) {
        hostports_fini(&p->more->ports);
        free(p->more->anti);
        free(p->more->name);
    }
    free(p->more);
    free(p->node);
    free(p);
}

static size_t namounts(const struct usage_pod *p)
{
    return (size_t)__builtin_popcount(p->base) + 2 * (size_t)p->others;
}

bool usage_pod_same(const struct usage_pod *a, const struct usage_pod *b)
{
    return a->base == b->base && a->others == b->others &&
           memcmp(a->amounts, b->amounts, namounts(a) * sizeof(a->amounts[0])) == 0;
}

void usage_pod_count(const struct usage_pod *p, int times, struct resources *sum)
{
    struct resources_other others[RESOURCES_OTHERS_MAX];
    struct resources r = {.others = others, .n = p->others};
    size_t k = 0;
    for (int i = 0; i < RESOURCES_BASE; i++)
        if (p->base & 1u << i)
            r.amount[i] = p->amounts[k++];
    for (size_t i = 0; i < r.n; i++, k += 2) {
        memcpy(&others[i].kind, &p->amounts[k], sizeof(uint64_t));
        others[i].amount = p->amounts[k + 1];
    }
    resources_count(sum, &r, times);
}
