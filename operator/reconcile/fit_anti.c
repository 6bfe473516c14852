/* SPDX-License-Identifier: Apache-2.0
 *
 * fit_anti: see fit_anti.h.
 */
#include "operator/reconcile/fit_anti.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cleanup.h"
#include "operator/reconcile/fit.h"

static size_t words(const struct cluster *c)
{
    return (size_t)c->n / 64 + 1;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static const char *value_of(const struct cluster *c, int node, const struct anti_term *term)
{
    return labels_get(&c->nodes[node].labels, term->topology);
}

/* The domains of the term's keepers, sorted, each once. NULL: no memory. */
static const char **domains_of(const struct cluster *c, const struct fit_anti *a, size_t *ret_n)
{
    const char **values = malloc(((size_t)a->n + 1) * sizeof(*values));
    size_t all = 0, n = 0;
    for (int i = 0; i < a->n && values; i++) {
        const char *value = value_of(c, a->keepers[i].node, a->term);
        if (value)
            values[all++] = value;
    }
    if (all > 1)
        qsort(values, all, sizeof(*values), by_text);
    for (size_t i = 0; i < all; i++)
        if (n == 0 || strcmp(values[n - 1], values[i]) != 0)
            values[n++] = values[i];
    *ret_n = n;
    return values;
}

static int compute(const struct cluster *c, struct fit_anti *a)
{
    size_t n;
    auto_free const char **domains = domains_of(c, a, &n);
    uint64_t *nodes = domains ? calloc(words(c), sizeof(*nodes)) : NULL;
    if (!nodes)
        return -ENOMEM;
    for (int i = 0; i < c->n && n > 0; i++) {
        const char *value = value_of(c, i, a->term);
        if (value && bsearch(&value, domains, n, sizeof(*domains), by_text))
            nodes[i / 64] |= UINT64_C(1) << (i % 64);
    }
    a->nodes = nodes;
    return 0;
}

static int by_name(const void *name, const void *namespace)
{
    return strcmp(name, ((const struct fit_namespace *)namespace)->name);
}

/* NULL: not known. */
static const struct labels *namespace_labels(const struct cluster *c, const char *name)
{
    const struct fit_namespace *found =
        c->nnamespaces > 0
            ? bsearch(name, c->namespaces, (size_t)c->nnamespaces, sizeof(*c->namespaces), by_name)
            : NULL;
    return found ? &found->labels : NULL;
}

/* Is the term about the job's workers? */
static bool selects(const struct cluster *c, const struct anti_term *term,
                    const struct podspec *spec)
{
    const char *namespace = spec->namespace_ ? spec->namespace_ : "";
    return anti_term_selects(term, namespace, namespace_labels(c, namespace), &spec->labels);
}

int fit_anti_nodes(const struct cluster *c, const struct podspec *spec, uint64_t **ret)
{
    uint64_t *nodes = NULL;
    for (int i = 0; i < c->nanti; i++) {
        struct fit_anti *a = &c->anti[i];
        if (!selects(c, a->term, spec))
            continue;
        if (!nodes)
            nodes = calloc(words(c), sizeof(*nodes));
        if (!nodes || (!a->nodes && compute(c, a) < 0)) {
            free(nodes);
            return -ENOMEM;
        }
        for (size_t k = 0; k < words(c); k++)
            nodes[k] |= a->nodes[k];
    }
    *ret = nodes;
    return 0;
}

const char *fit_anti_keeper(const struct cluster *c, const struct podspec *spec, int node)
{
    for (int i = 0; i < c->nanti; i++) {
        const struct fit_anti *a = &c->anti[i];
        const char *value = value_of(c, node, a->term);
        if (!value || !selects(c, a->term, spec))
            continue;
        for (int k = 0; k < a->n; k++) {
            const char *other = value_of(c, a->keepers[k].node, a->term);
            if (other && strcmp(other, value) == 0)
                return a->keepers[k].pod;
        }
    }
    return NULL;
}
