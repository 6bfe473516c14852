/* SPDX-License-Identifier: Apache-2.0
 *
 * order_sim_program: the groups and the programs of order_sim.
 */
#include "tests/harness/order_sim_private.h"

static void add_group(struct sim *s, uint64_t members)
{
    struct group *g = &s->groups[s->ngroups];
    *g = (struct group){.id = s->ngroups ? rank_random(&s->random) | 1 : ORDER_WORLD};
    for (int r = 0; r < s->size; r++) {
        g->member[r] = members >> r & 1;
        g->size += g->member[r];
    }
    g->negotiated = s->kind == ORDER_SIM_NEGOTIATED && sim_chance(s, 2);
    s->ngroups += g->size >= 2;
}

/* The world, the lines of a grid, pairs, and any other groups. */
void sim_fill_groups(struct sim *s)
{
    uint64_t all = ((uint64_t)1 << s->size) - 1;
    int width = 2 + (int)sim_chance(s, 3);
    add_group(s, all);
    for (int i = 0; i < s->size && s->ngroups < GROUPS / 2 && s->seed % 2; i++) {
        uint64_t row = 0, column = 0;
        for (int r = 0; r < s->size; r++) {
            row |= (uint64_t)(r / width == i) << r;
            column |= (uint64_t)(r % width == i) << r;
        }
        add_group(s, row);
        add_group(s, column);
    }
    while (s->ngroups < GROUPS && sim_chance(s, 8))
        add_group(s, all & rank_random(&s->random) &
                         (sim_chance(s, 2) ? rank_random(&s->random) : all));
}

/* ---- programs ------------------------------------------------------------------------------- */

static void add_step(struct sim *s, int rank, struct step step)
{
    struct node *n = &s->nodes[rank];
    if (n->nsteps == STEPS)
        sim_wrong(s, "the program is too long");
    else
        n->steps[n->nsteps++] = step;
    n->planned[step.group] += step.what == SUBMIT;
}

/* Waits for an operation of any of the groups, also for the last one. */
static void add_wait(struct sim *s, int rank, const int *groups, int n)
{
    int g = groups[sim_chance(s, (uint64_t)n)];
    uint64_t count = s->nodes[rank].planned[g];
    if (s->groups[g].member[rank] && !s->groups[g].dropped && count)
        add_step(s, rank,
                 (struct step){.what = WAIT, .group = g, .count = count - sim_chance(s, 2)});
}

/* Some groups, of which each rank submits its own, in this order or (MIXED) in one of its own. */
static void add_block(struct sim *s, const int *groups, int n, const uint64_t *waits)
{
    for (int r = 0; r < s->size; r++) {
        int order[PLACES];
        if (s->kind == ORDER_SIM_MIXED)
            rank_shuffle(order, n, &s->random);
        for (int i = 0; i < n; i++) {
            int g = groups[s->kind == ORDER_SIM_MIXED ? order[i] : i];
            if (!s->groups[g].member[r])
                continue;
            add_step(s, r, (struct step){.what = SUBMIT, .group = g});
            if (s->kind != ORDER_SIM_MIXED && sim_chance(s, 8) < waits[r])
                add_wait(s, r, groups, i + 1);
        }
        if (s->kind == ORDER_SIM_MIXED && sim_chance(s, 2))
            add_wait(s, r, groups, n);
    }
}

/* Every rank waits at the end of a step of the program, as for its loss. */
static void add_steps(struct sim *s, const int *groups, int n, int times, uint64_t phase)
{
    uint64_t waits[RANKS]; /* in 8: how often a rank waits */
    int block = s->kind == ORDER_SIM_MIXED ? 1 + (int)sim_chance(s, (uint64_t)n) : n;
    bool ends = s->kind == ORDER_SIM_STEADY || sim_chance(s, 2);
    for (int r = 0; r < s->size; r++)
        waits[r] = sim_chance(s, 3) ? sim_chance(s, 6) : 0;
    for (int t = 0; t < times; t++) {
        for (int r = 0; r < s->size && s->kind == ORDER_SIM_STEADY && t == times * 3 / 4; r++)
            add_step(s, r, (struct step){.what = MARK});
        for (int i = 0; i < n; i++)
            s->groups[groups[i]].keys[s->groups[groups[i]].n++] = phase << 32 | (uint64_t)i;
        for (int i = 0; i < n; i += block)
            add_block(s, groups + i, n - i < block ? n - i : block, waits);
        for (int r = 0; r < s->size && ends; r++)
            for (int i = 0; i < n; i++)
                if (s->groups[groups[i]].member[r])
                    add_step(s, r,
                             (struct step){.what = WAIT,
                                           .group = groups[i],
                                           .count = s->nodes[r].planned[groups[i]]});
    }
}

static void add_drop(struct sim *s, int g)
{
    s->groups[g].dropped = true;
    for (int r = 0; r < s->size; r++) {
        if (!s->groups[g].member[r])
            continue;
        add_step(s, r, (struct step){.what = WAIT, .group = g, .count = s->nodes[r].planned[g]});
        add_step(s, r, (struct step){.what = DROP, .group = g});
    }
}

void sim_fill_programs(struct sim *s)
{
    int phases = s->kind == ORDER_SIM_STEADY ? 1 : 1 + (int)sim_chance(s, 6);
    for (int phase = 0; phase < phases; phase++) {
        int groups[PLACES], n = 0, places = 1 + (int)sim_chance(s, PLACES);
        for (int i = 0; i < places; i++) {
            int g = (int)sim_chance(s, (uint64_t)s->ngroups);
            if (!s->groups[g].dropped)
                groups[n++] = g;
        }
        int times = s->kind == ORDER_SIM_STEADY ? 48 : 1 + (int)sim_chance(s, 20);
        if (n)
            add_steps(s, groups, n, times, (uint64_t)phase);
        for (int g = 1; g < s->ngroups && s->kind != ORDER_SIM_STEADY; g++)
            if (!s->groups[g].dropped && sim_chance(s, 12) == 0)
                add_drop(s, g);
    }
}
