/* SPDX-License-Identifier: Apache-2.0
 *
 * resources: see resources.h.
 */
#include "operator/objects/resources.h"

#include <stdio.h>
#include <string.h>

static const char *const known[RESOURCES_FIRST_OTHER] = {"cpu", "memory", "ephemeral-storage",
                                                         "pods"};

const char *resources_name(const struct resource_kinds *kinds, int kind)
{
    return kind < RESOURCES_FIRST_OTHER ? known[kind] : kinds->names[kind - RESOURCES_FIRST_OTHER];
}

enum quantity_unit resources_unit(const struct resource_kinds *kinds, int kind)
{
    if (kind == RESOURCES_CPU)
        return QUANTITY_MILLI;
    if (kind == RESOURCES_MEMORY || kind == RESOURCES_STORAGE ||
        strncmp(resources_name(kinds, kind), "hugepages-", 10) == 0)
        return QUANTITY_BYTES;
    return QUANTITY_COUNT;
}

/* Returns the index of the kind; adds a new kind to the table. -ENOSPC: the table is full, or the
 * name too long. */
static int place_of(struct resource_kinds *kinds, const char *name)
{
    for (int i = 0; i < resources_count(kinds); i++)
        if (strcmp(resources_name(kinds, i), name) == 0)
            return i;
    if (resources_count(kinds) == RESOURCES_MAX || strlen(name) >= RESOURCES_NAME_MAX)
        return -ENOSPC;
    memcpy(kinds->names[kinds->n++], name, strlen(name) + 1);
    return resources_count(kinds) - 1;
}

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

int resources_parse(json_t *j, bool loose, struct resource_kinds *kinds, struct resources *ret,
                    struct err *err)
{
    struct resources read = *ret;
    const char *name;
    json_t *value;
    if (j && !json_is_object(j))
        return err_set(err, EINVAL, "want a mapping of resources");
    json_object_foreach(j, name, value)
    {
        int place = place_of(kinds, name);
        if (place < 0 && loose)
            continue;
        if (place < 0)
            return err_set(err, ENOSPC, "%.96s: more than %d kinds of resources", name,
                           RESOURCES_MAX);
        if (amount_of(value, resources_unit(kinds, place), &read.amount[place]) < 0)
            return err_set(err, EINVAL, "%.96s: want an amount", name);
    }
    *ret = read;
    return 0;
}

/* Sums are clamped to QUANTITY_MAX, which no node has. */
void resources_add(struct resources *sum, const struct resources *more)
{
    for (int i = 0; i < RESOURCES_MAX; i++) {
        int64_t v = sum->amount[i] + more->amount[i];
        sum->amount[i] = v > QUANTITY_MAX ? QUANTITY_MAX : v;
    }
}

void resources_subtract(struct resources *sum, const struct resources *less)
{
    for (int i = 0; i < RESOURCES_MAX; i++) {
        int64_t v = sum->amount[i] - less->amount[i];
        sum->amount[i] = v < -QUANTITY_MAX ? -QUANTITY_MAX : v;
    }
}

void resources_max(struct resources *most, const struct resources *other)
{
    for (int i = 0; i < RESOURCES_MAX; i++)
        if (other->amount[i] > most->amount[i])
            most->amount[i] = other->amount[i];
}

int resources_fit(const struct resources *free, const struct resources *need, int limit)
{
    for (int i = 0; i < RESOURCES_MAX; i++) {
        if (need->amount[i] <= 0)
            continue;
        int64_t times = free->amount[i] < 0 ? 0 : free->amount[i] / need->amount[i];
        if (times < limit)
            limit = (int)times;
    }
    return limit;
}

void resources_write(const struct resource_kinds *kinds, const struct resources *r, char *dst,
                     size_t size)
{
    size_t n = 0;
    dst[0] = '\0';
    for (int i = 0; i < resources_count(kinds); i++) {
        char amount[32];
        if (r->amount[i] == 0 || i == RESOURCES_PODS || n >= size)
            continue;
        quantity_write(r->amount[i], resources_unit(kinds, i), amount, sizeof(amount));
        n += (size_t)snprintf(dst + n, size - n, "%s%s %s", n ? ", " : "", resources_name(kinds, i),
                              amount);
    }
    if (n == 0)
        snprintf(dst, size, "nothing");
}
