/* SPDX-License-Identifier: Apache-2.0
 *
 * fit: see fit.h. All workers of a job request the same, so filling node after node finds the
 * maximum.
 */
#include "operator/reconcile/fit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NODES_NAMED 4 /* in a message; further nodes are counted by obstacle */

/* Why no worker may run on a node even if it is empty. The order is that of messages: what may pass
 * by itself comes first. */
enum obstacle {
    OBSTACLE_NONE,
    OBSTACLE_NOT_READY,
    OBSTACLE_CORDON,
    OBSTACLE_TAINT,
    OBSTACLE_LABEL
};

static enum obstacle obstacle(const struct node *n, const struct podspec *spec)
{
    const char *missing;
    if (!labels_match(&n->labels, &spec->selector, &missing))
        return OBSTACLE_LABEL;
    if (taints_refuse(&n->taints, &spec->tolerated))
        return OBSTACLE_TAINT;
    if (n->cordoned)
        return OBSTACLE_CORDON;
    return n->ready ? OBSTACLE_NONE : OBSTACLE_NOT_READY;
}

static struct resources free_on(const struct cluster *c, int node)
{
    struct resources left = c->nodes[node].allocatable;
    resources_subtract(&left, &c->used[node]);
    return left;
}

int fit_count_on(const struct cluster *c, int node, const struct podspec *spec, int limit)
{
    struct resources left = free_on(c, node);
    return obstacle(&c->nodes[node], spec) == OBSTACLE_NONE
               ? resources_fit(&left, &spec->requests, limit)
               : 0;
}

int fit_count(const struct cluster *c, const struct podspec *spec, int limit)
{
    int n = 0;
    for (int i = 0; i < c->n && n < limit; i++)
        n += fit_count_on(c, i, spec, limit - n);
    return n;
}

int fit_count_empty(const struct cluster *c, const struct podspec *spec, int limit)
{
    int n = 0;
    for (int i = 0; i < c->n && n < limit; i++)
        if (obstacle(&c->nodes[i], spec) == OBSTACLE_NONE)
            n += resources_fit(&c->nodes[i].allocatable, &spec->requests, limit - n);
    return n;
}

void fit_place(struct cluster *c, int node, const struct podspec *spec, int n)
{
    for (; n > 0; n--)
        resources_add(&c->used[node], &spec->requests);
}

void fit_release(struct cluster *c, int node, const struct podspec *spec, int n)
{
    for (; n > 0; n--)
        resources_subtract(&c->used[node], &spec->requests);
}

void fit_reserve(struct cluster *c, const struct podspec *spec, int n)
{
    for (int i = 0; i < c->n && n > 0; i++) {
        int k = fit_count_on(c, i, spec, n);
        fit_place(c, i, spec, k);
        n -= k;
    }
}

/* ---- messages ------------------------------------------------------------------------------- */

struct words {
    char *dst;
    size_t size, len;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *w, const char *fmt, ...)
{
    va_list ap;
    if (w->len + 1 >= w->size)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(w->dst + w->len, w->size - w->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        w->len = w->len + (size_t)n < w->size ? w->len + (size_t)n : w->size - 1;
}

static void say_amount(struct words *w, const struct cluster *c, int kind, int64_t amount)
{
    char text[32];
    quantity_write(amount < 0 ? 0 : amount, resources_unit(c->kinds, kind), text, sizeof(text));
    say(w, "%s", text);
}

/* "memory 8Gi asked, 3.5Gi of 16Gi free": the resources that one worker lacks on this node. */
static void say_short(struct words *w, const struct cluster *c, int node,
                      const struct podspec *spec)
{
    struct resources left = free_on(c, node);
    const char *comma = "";
    for (int i = 0; i < resources_count(c->kinds); i++) {
        if (spec->requests.amount[i] <= 0 || left.amount[i] >= spec->requests.amount[i])
            continue;
        say(w, "%s%s ", comma, resources_name(c->kinds, i));
        say_amount(w, c, i, spec->requests.amount[i]);
        say(w, " asked, ");
        say_amount(w, c, i, left.amount[i]);
        say(w, " of ");
        say_amount(w, c, i, c->nodes[node].allocatable.amount[i]);
        say(w, " free");
        comma = ", ";
    }
}

static void say_node(struct words *w, const struct cluster *c, int node, const struct podspec *spec)
{
    const struct node *n = &c->nodes[node];
    const struct taint *t = taints_refuse(&n->taints, &spec->tolerated);
    const char *missing;
    say(w, "; node %.63s: ", n->name);
    switch (obstacle(n, spec)) {
    case OBSTACLE_NOT_READY:
        say(w, "not ready");
        return;
    case OBSTACLE_CORDON:
        say(w, "cordoned");
        return;
    case OBSTACLE_TAINT:
        say(w, "taint %.80s%s%.63s:%s is not tolerated", t->key, *t->value ? "=" : "", t->value,
            t->effect);
        return;
    case OBSTACLE_LABEL:
        labels_match(&n->labels, &spec->selector, &missing);
        say(w, "without the label %.80s=%.63s", missing, missing + strlen(missing) + 1);
        return;
    case OBSTACLE_NONE:
        break;
    }
    struct resources left = free_on(c, node);
    int fits = resources_fit(&left, &spec->requests, INT32_MAX);
    if (fits > 0)
        say(w, "room for %d", fits);
    else
        say_short(w, c, node, spec);
}

/* Names a resource of which one worker requests more than any node has even when empty: such a job
 * never fits this cluster. */
static bool say_never(struct words *w, const struct cluster *c, const struct podspec *spec)
{
    for (int i = 0; i < resources_count(c->kinds); i++) {
        int64_t most = 0;
        for (int k = 0; k < c->n; k++)
            if (obstacle(&c->nodes[k], spec) <= OBSTACLE_CORDON &&
                c->nodes[k].allocatable.amount[i] > most)
                most = c->nodes[k].allocatable.amount[i];
        if (spec->requests.amount[i] <= most)
            continue;
        say(w, "; no node for it has that much %s even when empty (the largest has ",
            resources_name(c->kinds, i));
        say_amount(w, c, i, most);
        say(w, ")");
        return true;
    }
    return false;
}

/* Names up to NODES_NAMED nodes, with their room or obstacle, and counts the others by obstacle.
 * Nodes that only lack resources come first. */
static void say_nodes(struct words *w, const struct cluster *c, const struct podspec *spec)
{
    static const char *const causes[] = {[OBSTACLE_NONE] = "without room",
                                         [OBSTACLE_NOT_READY] = "not ready",
                                         [OBSTACLE_CORDON] = "cordoned",
                                         [OBSTACLE_TAINT] = "with a taint that is not tolerated",
                                         [OBSTACLE_LABEL] =
                                             "without a label that nodeSelector wants"};
    int named = 0;
    for (int o = OBSTACLE_NONE; o <= OBSTACLE_LABEL; o++) {
        int more = 0;
        for (int i = 0; i < c->n; i++) {
            if (obstacle(&c->nodes[i], spec) != (enum obstacle)o)
                continue;
            if (named < NODES_NAMED) {
                say_node(w, c, i, spec);
                named++;
            } else {
                more++;
            }
        }
        if (more > 0)
            say(w, "; %d more %s %s", more, more == 1 ? "node" : "nodes", causes[o]);
    }
}

void fit_explain(const struct cluster *c, const struct podspec *spec, int want, char *dst,
                 size_t size)
{
    struct words w = {dst, size, 0};
    char asked[256];
    int fits = fit_count(c, spec, want);
    dst[0] = '\0';
    resources_write(c->kinds, &spec->requests, asked, sizeof(asked));
    say(&w, "%d of %d workers fit now; a worker asks for %s", fits, want, asked);
    if (c->n == 0)
        say(&w, "; there are no nodes");
    else if (!say_never(&w, c, spec) && fit_count_empty(c, spec, want) < want)
        say(&w, "; the whole cluster, empty, has room for %d", fit_count_empty(c, spec, want));
    say_nodes(&w, c, spec);
}
