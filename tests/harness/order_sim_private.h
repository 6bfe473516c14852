/* SPDX-License-Identifier: Apache-2.0
 *
 * order_sim_private: the state of order_sim, shared by the files that make it up. Tests only.
 */
#ifndef HVD_TESTS_HARNESS_ORDER_SIM_PRIVATE_H
#define HVD_TESTS_HARNESS_ORDER_SIM_PRIVATE_H

#include "core/negotiate/order_impl.h"
#include "tests/harness/order_sim.h"
#include "tests/harness/rank.h"

enum { RANKS = 12, GROUPS = 14, PLACES = 8, OPS = 4096, STEPS = 8192 };

enum what { SUBMIT, WAIT, DROP, MARK };

struct step {
    enum what what;
    int group;
    uint64_t count; /* WAIT: until so many operations of the group have ended */
};

struct group {
    uint64_t id;
    bool member[RANKS], negotiated, dropped;
    int size;
    uint64_t keys[OPS], n; /* of the whole program */
};

/* An operation of a rank. */
struct item {
    int group;
    uint64_t k;
};

struct queue {
    struct item items[OPS];
    uint32_t first, n;
};

struct message {
    struct message *next;
    struct buf bytes;
};

struct node {
    struct sim *sim;
    int rank, parent, children[RANKS], nchildren;
    struct order *o;
    struct step steps[STEPS];
    int nsteps, at;
    uint64_t submitted[GROUPS], announced[GROUPS], launched[GROUPS], ended[GROUPS];
    uint64_t planned[GROUPS]; /* while the program is written: submissions */
    struct queue unannounced, stream;
    struct message *in[RANKS], **in_end[RANKS]; /* by sender */
};

struct sim {
    uint64_t seed, random;
    enum order_sim_kind kind;
    int size, ngroups, nmarks;
    struct node nodes[RANKS];
    struct group groups[GROUPS];
    struct order_sim_result *result;
    bool moved;
};

static inline uint64_t sim_chance(struct sim *s, uint64_t below)
{
    return rank_random(&s->random) % below;
}

/* Notes the first thing that goes wrong. */
__attribute__((format(printf, 2, 3))) void sim_wrong(struct sim *s, const char *fmt, ...);

/* order_sim_program.c */
void sim_fill_groups(struct sim *s);
void sim_fill_programs(struct sim *s);

#endif
