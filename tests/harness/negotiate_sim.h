/* SPDX-License-Identifier: Apache-2.0
 *
 * negotiate_sim: a simulated world of negotiate objects in one process:
 *
 * - message queues between them, delivered in random order (in order on each link),
 * - a clock that the simulation advances,
 * - an engine that runs batches as the real one does: none ends before every rank has started it,
 *   bound ones are started when they are handed out and end in any order,
 * - a program on each rank.
 *
 * The seed determines everything. The first violated rule is written to sim.why, and sim_run()
 * returns false.
 */
#ifndef HVD_TESTS_NEGOTIATE_SIM_H
#define HVD_TESTS_NEGOTIATE_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/negotiate/negotiate.h"

enum { SIM_RANKS = 9, SIM_NAMES = 64, SIM_JOINS = 64, SIM_STALL_TEXT = 2000 };

/* One instruction of a rank's program. */
struct sim_step {
    /* PRIORITIZE: another thread waits, and the program goes on. JOIN: it has run out of work, and
     * goes on when all ranks have. LEAVE: the program's last step; what others wait for then fails,
     * and they leave, too. */
    enum { SIM_SUBMIT, SIM_WAIT, SIM_PRIORITIZE, SIM_SLEEP, SIM_JOIN, SIM_LEAVE } what;
    int name;       /* tensor "t<name>" */
    uint32_t group; /* SUBMIT: this and the next steps, `group` in all, are a group */
    /* Version of the shape; the same on every rank unless a mismatch is intended. */
    uint64_t version;
    struct signature sig; /* SUBMIT */
    uint64_t ns;          /* SLEEP */
};

/* Batches that are not bound run one after the other; bound ones run beside them. */
enum sim_lane_kind { SIM_HOST, SIM_BOUND, SIM_LANES };

struct sim_batch {
    struct sim_batch *next;
    uint64_t number;
    bool frozen, started;
    uint64_t place; /* once started: in its lane's log */
    bool wrong;     /* its tables do not match what every rank submitted: a thaw must drop it */
    size_t n;
    uint64_t ids[]; /* ids of the batch's tensors */
};

struct sim_tensor {
    uint64_t id;
    enum { SIM_FREE, SIM_UNDER_WAY, SIM_DONE, SIM_FAILED } state;
    struct signature sig;
    bool neutral; /* submitted because other ranks did, by a rank that has joined */
    uint64_t version, submitted, ran, failed;
    char text[1024]; /* text of the last failure */
};

/* A tensor that negotiate asked a rank which has joined to take part in. */
struct sim_want {
    int name;
    struct signature sig;
};

struct sim_message {
    struct sim_message *next;
    size_t len;
    uint8_t data[];
};

struct sim_lane {
    struct sim_batch *first, **end;
    uint64_t started, executed; /* batches */
};

struct sim_rank {
    struct sim *sim;
    int rank;
    struct negotiate *n;
    struct negotiate_config config;
    int children[SIM_RANKS];
    struct sim_step *steps;
    size_t nsteps, cap, at;
    uint64_t awake, due;
    struct sim_tensor tensors[SIM_NAMES];
    struct sim_lane lanes[SIM_LANES];
    uint64_t next, dropped; /* batch numbers: the smallest next one; the last dropped one */
    bool deaf;              /* does nothing, like a stopped process */
    bool eager;             /* tries the fast path first */
    enum negotiate_join join;
    bool joined; /* all have joined, and this SIM_JOIN is about to end */
    int joins;   /* that are over */
    struct sim_want wants[SIM_NAMES];
    int nwants;
    uint64_t neutrals;          /* how many it has submitted */
    uint64_t fast;              /* how often the fast path was taken */
    char stall[SIM_STALL_TEXT]; /* lines of all stall reports */
    int nstalls;
    char lacks[64];  /* what inquiries asked for and this rank had not submitted: "t1 t2 " */
    char lost[1024]; /* why the rank has ended */
    int lost_rank;   /* the rank that caused this end */
    int lost_code;
};

/* What runs at each place of a lane: a text that must be the same on every rank. */
struct sim_log {
    char **texts;
    int *started; /* ranks */
    size_t n;
};

struct sim {
    uint64_t seed, rng, now;
    int n;
    struct sim_rank ranks[SIM_RANKS];
    struct sim_message *queue[SIM_RANKS][SIM_RANKS], **queue_end[SIM_RANKS][SIM_RANKS];
    uint64_t messages;
    struct sim_log logs[SIM_LANES];
    int last[SIM_JOINS]; /* 1 + the rank that was the last in each join; 0: it is not over */
    uint64_t progress;
    int left;     /* ranks that have left */
    bool aborted; /* a rank that leaves owes a batch */
    char why[2400];
};

struct sim_options {
    int n;
    int fan; /* ranks of a host; 0: a flat tree; 1: a binary tree */
    uint64_t fusion_bytes, cycle_ns, stall_ns, stall_shutdown_ns;
    uint32_t cache_capacity, freeze_after;
    uint64_t thaws_max;
};

void sim_init(struct sim *s, uint64_t seed, const struct sim_options *o);
void sim_fini(struct sim *s);

uint64_t sim_random(struct sim *s, uint64_t below);

/* Appends to a rank's program. */
struct sim_step *sim_add(struct sim_rank *r, const struct sim_step *step);
void sim_submit(struct sim_rank *r, int name, const struct signature *sig, uint64_t version);
void sim_wait(struct sim_rank *r, int name);
void sim_sleep(struct sim_rank *r, uint64_t ns);

/* Signature of a float32 sum of so many elements. */
struct signature sim_allreduce(int64_t count);
struct signature sim_allgather(void);

/* The same in a GPU's memory: its batches are bound, except those of float16. */
struct signature sim_on_gpu(struct signature sig);
bool sim_binds(const struct signature *sig);

/* Batches that the rank has run. */
uint64_t sim_executed(const struct sim_rank *r);

/* Dimension 0 that this rank submits for a name and version. */
int64_t sim_dim0(int name, uint64_t version, int rank);

/* Runs the programs to their end, which may be ops.lost on every rank. False: see s->why. */
bool sim_run(struct sim *s);

/* Takes one random step on one rank or link. */
void sim_step_once(struct sim *s);

void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
