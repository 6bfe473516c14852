/* SPDX-License-Identifier: Apache-2.0
 *
 * resources: see resources.h.
 */
#include "operator/objects/resources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "core/base/mac.h"

static const char *const base_names[RESOURCES_BASE] = {"cpu", "memory", "ephemeral-storage",
                                                       "pods"};

/* The index of a kind that every struct has; -1: none of these. */
static int base_of(const char *name)
{
    for (int i = 0; i < RESOURCES_BASE; i++)
        if (strcmp(name, base_names[i]) == 0)
            return i;
    return -1;
}

/* Names do not have to be secret: the key is zeros. */
static uint64_t kind_of(const char *name)
{
    static const uint8_t key[MAC_KEY_SIZE];
    const struct mac_part part = {name, strlen(name)};
    uint8_t mac[MAC_SIZE];
    uint64_t kind;
    mac_make(key, "resource", &part, 1, mac);
    memcpy(&kind, mac, sizeof(kind));
    return kind;
}

void resources_fini(struct resources *r)
{
    free(r->others);
    *r = (struct resources){0};
}

int resources_copy(const struct resources *r, struct resources *ret)
{
    struct resources copy = *r;
    copy.others = NULL;
    if (r->n > 0) {
        copy.others = malloc(r->n * sizeof(*copy.others));
        if (!copy.others)
            return -ENOMEM;
        memcpy(copy.others, r->others, r->n * sizeof(*copy.others));
    }
    *ret = copy;
    return 0;
}

int resources_zero_like(const struct resources *r, struct resources *ret)
{
    int rc = resources_copy(r, ret);
    if (rc < 0)
        return rc;
    memset(ret->amount, 0, sizeof(ret->amount));
    for (size_t i = 0; i < ret->n; i++)
        ret->others[i].amount = 0;
    return 0;
}

/* The entry of this kind; NULL: r has none. */
static struct resources_other *find(const struct resources *r, uint64_t kind)
{
    size_t low = 0, high = r->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->others[middle].kind == kind)
            return &r->others[middle];
        if (r->others[middle].kind < kind)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* ---- combining ------------------------------------------------------------------------------- */

typedef resources_sum combine_f(resources_sum a, resources_sum b);

static resources_sum sum(resources_sum a, resources_sum b)
{
    return a + b;
}

static resources_sum larger(resources_sum a, resources_sum b)
{
    return a > b ? a : b;
}

static resources_sum second(resources_sum a, resources_sum b)
{
    (void)a;
    return b;
}

/* Merges the other kinds of both; what only one has stays as it is. */
static int merge(struct resources *r, const struct resources *b, combine_f *combine,
                 struct err *err)
{
    size_t i = 0, k = 0, n = 0;
    if (b->n == 0)
        return 0;
    if (b->n > RESOURCES_OTHERS_MAX || r->n > RESOURCES_OTHERS_MAX)
        return err_set(err, E2BIG, "more than %d kinds of resources", RESOURCES_OTHERS_MAX);
    struct resources_other *all = malloc((r->n + b->n) * sizeof(*all));
    if (!all)
        return err_set(err, ENOMEM, "no memory");
    while (i < r->n || k < b->n) {
        if (k == b->n || (i < r->n && r->others[i].kind < b->others[k].kind)) {
            all[n++] = r->others[i++];
        } else if (i == r->n || b->others[k].kind < r->others[i].kind) {
            all[n++] = b->others[k++];
        } else {
            all[n] = r->others[i++];
            all[n].amount = combine(all[n].amount, b->others[k++].amount);
            n++;
        }
    }
    if (n > RESOURCES_OTHERS_MAX) {
        free(all);
        return err_set(err, E2BIG, "more than %d kinds of resources", RESOURCES_OTHERS_MAX);
    }
    free(r->others);
    r->others = all;
    r->n = n;
    return 0;
}

static int combine_all(struct resources *r, const struct resources *b, combine_f *combine,
                       struct err *err)
{
    int rc = merge(r, b, combine, err);
    for (int i = 0; i < RESOURCES_BASE && rc == 0; i++)
        r->amount[i] = combine(r->amount[i], b->amount[i]);
    return rc;
}

int resources_add(struct resources *r, const struct resources *more, struct err *err)
{
    return combine_all(r, more, sum, err);
}

int resources_max(struct resources *r, const struct resources *other, struct err *err)
{
    return combine_all(r, other, larger, err);
}

int resources_set(struct resources *r, const char *name, resources_sum amount, struct err *err)
{
    int base = base_of(name);
    struct resources_other one = {kind_of(name), amount};
    if (base < 0)
        return merge(r, &(struct resources){.others = &one, .n = 1}, second, err);
    r->amount[base] = amount;
    return 0;
}

resources_sum resources_get(const struct resources *r, const char *name)
{
    int base = base_of(name);
    const struct resources_other *o = base < 0 ? find(r, kind_of(name)) : NULL;
    return base >= 0 ? r->amount[base] : o ? o->amount : 0;
}

void resources_count(struct resources *r, const struct resources *more, int times)
{
    for (int i = 0; i < RESOURCES_BASE; i++)
        r->amount[i] += more->amount[i] * times;
    for (size_t i = 0; i < more->n && r->n > 0; i++) {
        struct resources_other *o = find(r, more->others[i].kind);
        if (o)
            o->amount += more->others[i].amount * times;
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Parses an amount: a string, or a plain number, which an unvalidated template may contain. */
static int amount_of(json_t *j, enum quantity_unit unit, int64_t *ret)
{
    char text[64];
    if (json_is_string(j))
        return quantity_parse(json_string_value(j), unit, ret);
    if (json_is_integer(j))
        snprintf(text, sizeof(text), "%" JSON_INTEGER_FORMAT, json_integer_value(j));
    else if (json_is_real(j))
        snprintf(text, sizeof(text), "%.9f", json_real_value(j));
    else
        return -EINVAL;
    return quantity_parse(text, unit, ret);
}

static int by_kind(const void *a, const void *b)
{
    uint64_t p = ((const struct resources_other *)a)->kind;
    uint64_t q = ((const struct resources_other *)b)->kind;
    return p < q ? -1 : p > q;
}

int resources_parse(json_t *j, struct buf *names, struct resources *r, struct err *err)
{
    struct resources read = {.n = 0};
    auto_free struct resources_other *others = NULL;
    const char *name;
    json_t *value;
    if (!j || json_is_null(j))
        return 0;
    if (!json_is_object(j))
        return err_set(err, EINVAL, "want a mapping of resources");
    memcpy(read.amount, r->amount, sizeof(read.amount));
    others = malloc((json_object_size(j) + 1) * sizeof(*others));
    if (!others)
        return err_set(err, ENOMEM, "no memory");
    json_object_foreach(j, name, value)
    {
        int64_t amount = 0;
        int base = base_of(name);
        if (amount_of(value, base == RESOURCES_CPU ? QUANTITY_MILLI : QUANTITY_COUNT, &amount) < 0)
            return err_set(err, EINVAL, "%.96s: want an amount", name);
        if (base >= 0) {
            read.amount[base] = amount;
            continue;
        }
        others[read.n++] = (struct resources_other){kind_of(name), amount};
        if (names)
            buf_put(names, name, strlen(name) + 1);
    }
    if (names && names->failed)
        return err_set(err, ENOMEM, "no memory");
    if (read.n > 1)
        qsort(others, read.n, sizeof(*others), by_kind);
    if (r->n > 0) {
        read.others = others;
        int rc = merge(r, &read, second, err);
        if (rc < 0)
            return rc;
    } else if (read.n > 0) {
        r->others = TAKE(others);
        r->n = read.n;
    }
    memcpy(r->amount, read.amount, sizeof(read.amount));
    return 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */

resources_sum resources_at(const struct resources *r, size_t i)
{
    return i < RESOURCES_BASE ? r->amount[i] : r->others[i - RESOURCES_BASE].amount;
}

resources_sum resources_same(const struct resources *r, size_t i, const struct resources *other)
{
    if (i < RESOURCES_BASE)
        return other->amount[i];
    const struct resources_other *o = find(other, r->others[i - RESOURCES_BASE].kind);
    return o ? o->amount : 0;
}

int resources_fit(const struct resources *offered, const struct resources *used,
                  const struct resources *need, int limit)
{
    for (size_t i = 0; i < resources_kinds(need); i++) {
        resources_sum asked = resources_at(need, i);
        if (asked <= 0)
            continue;
        resources_sum left = resources_same(need, i, offered) - resources_same(need, i, used);
        resources_sum times = left < 0 || asked >= QUANTITY_MAX ? 0 : left / asked;
        if (times < limit)
            limit = (int)times;
    }
    return limit;
}

/* ---- messages -------------------------------------------------------------------------------- */

const char *resources_name(const struct resources *r, size_t i, const char *names)
{
    if (i < RESOURCES_BASE)
        return base_names[i];
    for (const char *p = names; p && *p; p += strlen(p) + 1)
        if (kind_of(p) == r->others[i - RESOURCES_BASE].kind)
            return p;
    return "a resource";
}

static enum quantity_unit unit_of(const char *name)
{
    if (strcmp(name, "cpu") == 0)
        return QUANTITY_MILLI;
    if (strcmp(name, "memory") == 0 || strcmp(name, "ephemeral-storage") == 0 ||
        strncmp(name, "hugepages-", 10) == 0)
        return QUANTITY_BYTES;
    return QUANTITY_COUNT;
}

void resources_write_amount(const struct resources *r, size_t i, const char *names,
                            resources_sum amount, char *dst, size_t size)
{
    int64_t shown = amount < 0 ? 0 : amount > QUANTITY_MAX ? QUANTITY_MAX : (int64_t)amount;
    quantity_write(shown, unit_of(resources_name(r, i, names)), dst, size);
}

void resources_write(const struct resources *r, const char *names, char *dst, size_t size)
{
    size_t n = 0;
    dst[0] = '\0';
    for (size_t i = 0; i < resources_kinds(r); i++) {
        char amount[32];
        if (resources_at(r, i) == 0 || i == RESOURCES_PODS || n >= size)
            continue;
        resources_write_amount(r, i, names, resources_at(r, i), amount, sizeof(amount));
        n += (size_t)snprintf(dst + n, size - n, "%s%s %s", n ? ", " : "",
                              resources_name(r, i, names), amount);
    }
    if (n == 0)
        snprintf(dst, size, "nothing");
}
