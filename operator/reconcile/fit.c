/* SPDX-License-Identifier: Apache-2.0
 *
 * fit: see fit.h. All workers of a job request the same, so filling node after node finds the
 * maximum.
 */
#include "operator/reconcile/fit.h"

#include <stdarg.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES_NAMED 4 /* in a message; further nodes are counted by obstacle */

/* Why no worker may run on a node now, other than for a lack of resources. The order is that of
 * messages: what may pass by itself comes first. */
enum obstacle {
    OBSTACLE_NONE,
    OBSTACLE_PORT,
    OBSTACLE_ANTI,
    OBSTACLE_NOT_READY,
    OBSTACLE_CORDON,
    OBSTACLE_TAINT,
    OBSTACLE_LABEL
};

#define OBSTACLES (OBSTACLE_LABEL + 1)

/* One job and the cluster. */
struct trial {
    const struct cluster *c;
    const struct podspec *spec;
    uint64_t *kept; /* the nodes that pods' anti-affinity keeps workers off; NULL: none */
    bool looked;    /* kept is known */
    bool failed;    /* no memory: nothing fits */
};

static struct trial begin(const struct cluster *c, const struct podspec *spec)
{
    return (struct trial){.c = c, .spec = spec};
}

static void end(struct trial *t)
{
    free(t->kept);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* What a node has even if no pod runs on it. */
static enum obstacle lasting_obstacle(const struct node *n, const struct podspec *spec)
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

static const struct hostport *port_conflict(const struct trial *t, int node)
{
    return t->c->ports ? hostports_conflict(&t->c->ports[node], &t->spec->ports) : NULL;
}

static void look(struct trial *t)
{
    if (!t->looked)
        t->failed = fit_anti_nodes(t->c, t->spec, &t->kept) < 0;
    t->looked = true;
}

/* In a busy cluster most trials end before a node has room: kept is computed once one has. */
static bool is_kept(struct trial *t, int node)
{
    look(t);
    return t->failed || fit_anti_has(t->kept, node);
}

static enum obstacle obstacle(struct trial *t, int node)
{
    enum obstacle lasting = lasting_obstacle(&t->c->nodes[node], t->spec);
    if (lasting != OBSTACLE_NONE)
        return lasting;
    if (is_kept(t, node))
        return OBSTACLE_ANTI;
    return port_conflict(t, node) ? OBSTACLE_PORT : OBSTACLE_NONE;
}

/* Two workers with the same host port never share a node. */
static int most_per_node(const struct podspec *spec, int limit)
{
    return spec->ports.n > 0 && limit > 1 ? 1 : limit;
}

static int room_on(struct trial *t, int node, int limit)
{
    if (t->failed || limit <= 0)
        return 0;
    /* Resources first: in a busy cluster they decide about most nodes, and are compared quickly. */
    int n = resources_fit(&t->c->nodes[node].allocatable, &t->c->used[node], &t->spec->requests,
                          most_per_node(t->spec, limit));
    return n > 0 && obstacle(t, node) == OBSTACLE_NONE ? n : 0;
}

int fit_count(const struct cluster *c, const struct podspec *spec, int limit)
{
    struct trial t = begin(c, spec);
    int n = 0;
    for (int i = 0; i < c->n && n < limit; i++)
        n += room_on(&t, i, limit - n);
    end(&t);
    return n;
}

int fit_count_empty(const struct cluster *c, const struct podspec *spec, int limit)
{
    static const struct resources nothing;
    int n = 0;
    for (int i = 0; i < c->n && n < limit; i++)
        if (lasting_obstacle(&c->nodes[i], spec) == OBSTACLE_NONE)
            n += resources_fit(&c->nodes[i].allocatable, &nothing, &spec->requests,
                               most_per_node(spec, limit - n));
    return n;
}

int fit_plan(const struct cluster *c, const struct podspec *spec, int n, int *counts)
{
    struct trial t = begin(c, spec);
    int placed = 0;
    for (int i = 0; i < c->n; i++) {
        counts[i] = placed < n ? room_on(&t, i, n - placed) : 0;
        placed += counts[i];
    }
    end(&t);
    return placed;
}

void fit_place(struct cluster *c, int node, const struct podspec *spec, int n)
{
    if (n == 0)
        return;
    resources_count(&c->used[node], &spec->requests, n);
    if (n > 0 && c->ports && hostports_add(&c->ports[node], &spec->ports) < 0)
        c->used[node].amount[RESOURCES_PODS] += QUANTITY_MAX;
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

static void say_amount(struct words *w, const struct podspec *spec, size_t kind,
                       resources_sum amount)
{
    char text[32];
    resources_write_amount(&spec->requests, kind, spec->names, amount, text, sizeof(text));
    say(w, "%s", text);
}

/* "memory 8Gi asked, 3.5Gi of 16Gi free": the resources that one worker lacks on this node. */
static void say_short(struct words *w, const struct cluster *c, int node,
                      const struct podspec *spec)
{
    const struct resources *need = &spec->requests;
    const char *comma = "";
    for (size_t i = 0; i < resources_kinds(need); i++) {
        resources_sum asked = resources_at(need, i);
        resources_sum offered = resources_same(need, i, &c->nodes[node].allocatable);
        resources_sum left = offered - resources_same(need, i, &c->used[node]);
        if (asked <= 0 || (left >= asked && asked < QUANTITY_MAX))
            continue;
        say(w, "%s%s ", comma, resources_name(need, i, spec->names));
        say_amount(w, spec, i, asked);
        say(w, " asked, ");
        say_amount(w, spec, i, left);
        say(w, " of ");
        say_amount(w, spec, i, offered);
        say(w, " free");
        comma = ", ";
    }
}

static void say_node(struct words *w, struct trial *t, int node)
{
    const struct podspec *spec = t->spec;
    const struct node *n = &t->c->nodes[node];
    const struct taint *taint = taints_refuse(&n->taints, &spec->tolerated);
    const struct hostport *port = port_conflict(t, node);
    const char *missing, *keeper;
    say(w, "; node %.63s: ", n->name);
    switch (obstacle(t, node)) {
    case OBSTACLE_PORT:
        say(w, "host port %d/%s is in use", port->port, port->protocol);
        return;
    case OBSTACLE_ANTI:
        keeper = fit_anti_keeper(t->c, spec, node);
        say(w, "the anti-affinity of pod %.127s keeps workers off it", keeper ? keeper : "");
        return;
    case OBSTACLE_NOT_READY:
        say(w, "not ready");
        return;
    case OBSTACLE_CORDON:
        say(w, "cordoned");
        return;
    case OBSTACLE_TAINT:
        say(w, "taint %.80s%s%.63s:%s is not tolerated", taint->key, *taint->value ? "=" : "",
            taint->value, taint->effect);
        return;
    case OBSTACLE_LABEL:
        labels_match(&n->labels, &spec->selector, &missing);
        say(w, "without the label %.80s=%.63s", missing, missing + strlen(missing) + 1);
        return;
    case OBSTACLE_NONE:
        break;
    }
    int fits = room_on(t, node, INT32_MAX);
    if (fits > 0)
        say(w, "room for %d", fits);
    else
        say_short(w, t->c, node, spec);
}

/* Is there a node that taints, labels and cordons do not exclude? */
static bool any_node_takes(const struct cluster *c, const struct podspec *spec)
{
    for (int i = 0; i < c->n; i++)
        if (lasting_obstacle(&c->nodes[i], spec) <= OBSTACLE_NOT_READY)
            return true;
    return false;
}

/* Names a resource of which one worker requests more than any node has even when empty: such a job
 * never fits this cluster. */
static bool say_too_large(struct words *w, const struct cluster *c, const struct podspec *spec)
{
    for (size_t i = 0; i < resources_kinds(&spec->requests); i++) {
        resources_sum most = 0, asked = resources_at(&spec->requests, i);
        for (int k = 0; k < c->n; k++) {
            resources_sum has = resources_same(&spec->requests, i, &c->nodes[k].allocatable);
            if (lasting_obstacle(&c->nodes[k], spec) <= OBSTACLE_CORDON && has > most)
                most = has;
        }
        if (asked <= most && asked < QUANTITY_MAX)
            continue;
        say(w, "; no node for it has that much %s even when empty (the largest has ",
            resources_name(&spec->requests, i, spec->names));
        say_amount(w, spec, i, most);
        say(w, ")");
        return true;
    }
    return false;
}

/* Names up to NODES_NAMED nodes, with their room or obstacle, and counts the others by obstacle.
 * Nodes that only lack resources come first. */
static void say_nodes(struct words *w, struct trial *t)
{
    static const char *const causes[] = {
        [OBSTACLE_NONE] = "without room",
        [OBSTACLE_PORT] = "with its host port in use",
        [OBSTACLE_ANTI] = "that the anti-affinity of other pods keeps workers off",
        [OBSTACLE_NOT_READY] = "not ready",
        [OBSTACLE_CORDON] = "cordoned",
        [OBSTACLE_TAINT] = "with a taint that is not tolerated",
        [OBSTACLE_LABEL] = "without a label that nodeSelector wants"};
    int first[OBSTACLES][NODES_NAMED], count[OBSTACLES] = {0}, named = 0;
    for (int i = 0; i < t->c->n; i++) {
        enum obstacle o = obstacle(t, i);
        if (count[o] < NODES_NAMED)
            first[o][count[o]] = i;
        count[o]++;
    }
    for (int o = 0; o < OBSTACLES; o++) {
        int k = 0;
        for (; k < count[o] && named < NODES_NAMED; k++, named++)
            say_node(w, t, first[o][k]);
        if (count[o] > k)
            say(w, "; %d more %s %s", count[o] - k, count[o] - k == 1 ? "node" : "nodes",
                causes[o]);
    }
}

static void say_asked(struct words *w, const struct podspec *spec)
{
    char asked[256];
    resources_write(&spec->requests, spec->names, asked, sizeof(asked));
    say(w, "a worker asks for %s", asked);
    for (size_t i = 0; i < spec->ports.n && i < 3; i++)
        say(w, ", host port %d", spec->ports.all[i].port);
}

/* Says why want workers would not fit if the cluster were empty, except what excludes each node. */
static void say_never(struct words *w, const struct cluster *c, const struct podspec *spec,
                      int want)
{
    int empty = fit_count_empty(c, spec, want);
    if (c->n == 0)
        say(w, "; there are no nodes");
    else if (!any_node_takes(c, spec))
        say(w, "; no node takes it");
    else if (empty < want && !say_too_large(w, c, spec))
        say(w, "; the whole cluster, empty, has room for %d", empty);
}

static void say_fit(struct words *w, const struct cluster *c, const struct podspec *spec, int want)
{
    say(w, "%d of %d workers fit now; ", fit_count(c, spec, want), want);
    say_asked(w, spec);
}

bool fit_never(const struct cluster *c, const struct podspec *spec, int want, char *dst,
               size_t size)
{
    struct words w = {dst, size, 0};
    dst[0] = '\0';
    if (fit_count_empty(c, spec, want) >= want)
        return false;
    say_fit(&w, c, spec, want);
    say_never(&w, c, spec, want);
    return true;
}

void fit_explain(const struct cluster *c, const struct podspec *spec, int want, char *dst,
                 size_t size)
{
    struct words w = {dst, size, 0};
    struct trial t = begin(c, spec);
    look(&t);
    dst[0] = '\0';
    say_fit(&w, c, spec, want);
    if (t.failed)
        say(&w, "; no memory to judge it");
    else
        say_never(&w, c, spec, want);
    if (!t.failed)
        say_nodes(&w, &t);
    end(&t);
}
