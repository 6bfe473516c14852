/* SPDX-License-Identifier: Apache-2.0
 *
 * order_impl: the state of one node of the tree, shared by the files that make up order:
 *
 *   order.c         the calls of order.h, the rank's operations
 *   order_follow.c  messages down: the log, patterns and thaws on a rank
 *   order_up.c      messages up: announcements, added up on the way
 *   order_root.c    the root writes the log
 *   order_left.c    the root after a thaw: operations that not all ranks have launched
 *   order_plan.c    the root makes a pattern
 *
 * Everything runs under the engine's progress lock.
 *
 * A generation is a pattern or a log. Generation 0 is the pattern of the world; each pattern and
 * each thaw begins the next one. Messages up of an older generation are stale and dropped.
 */
#ifndef HVD_NEGOTIATE_ORDER_IMPL_H
#define HVD_NEGOTIATE_ORDER_IMPL_H

#include "core/base/list.h"
#include "core/negotiate/negotiate.h"
#include "core/negotiate/order.h"
#include "core/negotiate/pairs.h"
#include "core/negotiate/rounds.h"

/* A message is u8 type, u64 generation, and what the type needs. */
enum order_message {
    ORDER_UP = 1,   /* records, see enum order_record */
    ORDER_ASK,      /* a rank at or below the sender cannot follow the pattern */
    ORDER_LOG = 32, /* runs: u64 group, u64 k of the first operation, u32 how many */
    ORDER_PATTERN,  /* order_plan.c; begins a generation */
    ORDER_THAW,     /* begins a generation */
};

/* Each begins with u8 kind. Of a rank they come in this order: INITs, BEGUN, DRAINED,
 * OPs, DROPs. A group that the rank uses for the first time in the generation has its INIT later,
 * before its OPs. */
enum order_record {
    ORDER_INIT = 1, /* u32 rank, u64 group, u32 size, u64 committed: so many of the group's
                       operations the rank has launched or has in the log */
    ORDER_BEGUN,    /* u32 ranks at or below the sender that have sent the INITs of all groups */
    ORDER_DRAINED,  /* u32 ranks at or below the sender that do not drain (any more) */
    ORDER_OP,       /* an operation, see struct order_announced */
    ORDER_DROP,     /* u64 group: a rank that has sent its INIT of this group has dropped it */
};

/* Limits, mostly of what peers can make a node store: far more than a job has. */
enum {
    ORDER_GROUPS_MAX = 1 << 18, /* of the root */
    ORDER_OPS_MAX = 1 << 20,    /* announced and not logged, of a node */
    ORDER_LEFT_MAX = 4096,      /* per rank, on average: launched in a pattern, not ended */
    ORDER_PART = 256 << 10,     /* bytes: a longer message up is sent before a record is added */
    ORDER_BACKOFF_MAX = 6, /* a pattern that is left soon doubles freeze_after, at most so often */
};

/* The k-th operation of a group. */
struct order_ref {
    uint64_t group, k;
};

/* ORDER_OP: u64 group, u64 k, u64 key, u32 count, u8 early, u32 nbefore, nbefore times u64 group,
 * u64 k. */
struct order_announced {
    struct order_ref ref;
    uint64_t key;
    uint32_t count;           /* ranks at or below this node that have announced it */
    bool early;               /* on one of them it was announced by order_ready_early() */
    struct order_ref *before; /* [nbefore], owned: what these ranks announced just before it */
    uint32_t nbefore, cap;
};

struct order_group;

/* ---- a rank's own operations --------------------------------------------------------------- */

struct order_op {
    struct list at; /* order.launch, order.waiting, or order.spare */
    struct list in_group;
    struct order_group *group;
    uint64_t k, key;
    bool early;
    bool planned; /* in order.launch: by the pattern that is in force */
};

struct order_group {
    uint64_t id;
    int size;
    uint32_t index;     /* in order.groups */
    uint64_t ready;     /* operations announced by the caller */
    uint64_t committed; /* launched, or in the log */
    uint64_t launched;
    struct list ops; /* order_op.in_group: announced and not launched, in their order */
    bool told;       /* INIT was announced in this generation */
};

/* ---- the root ------------------------------------------------------------------------------ */

/* An operation that was announced in this generation, or is left from the pattern before it. */
struct root_op {
    struct order_announced said;
    bool used;
    bool gone;        /* logged, or dropped: it is not in root.op_index any more */
    uint32_t blocked; /* how many operations that are left have to be logged before it */
    uint32_t *next;   /* [nnext], owned: ops that it blocks */
    uint32_t nnext;
    uint32_t link;   /* a list of operations that are removed; PAIRS_NONE: the last one */
    uint32_t jumped; /* operations in the log that a rank announced just after it */
};

struct root_init {
    uint32_t rank;
    uint64_t committed;
};

struct root_group {
    uint64_t id;
    uint32_t size;
    struct root_init *inits; /* [ninit] */
    uint32_t ninit, cap, ndrop;
    bool dead;     /* a rank has dropped it: nothing of it is logged any more */
    bool touched;  /* in root.touched */
    bool planned;  /* while a pattern is made: it is part of it */
    uint64_t next; /* what is logged next; the smallest INIT until all ranks have sent one */
    uint64_t top;  /* the largest root_init.committed */
    uint32_t open; /* operations announced and not logged */
};

/* An operation in the log. */
struct root_logged {
    struct order_ref ref;
    bool early;
    struct order_ref *before; /* [nbefore], owned */
    uint32_t nbefore;
};

/* A pattern: operation k of group g has place (k - begin) / count rounds, then
 * places[(k - begin) % count]. */
struct root_planned {
    uint64_t id, begin;
    uint32_t count;   /* in a round */
    uint32_t *places; /* [count], inside root_plan.places */
};

struct root_plan {
    struct root_planned *groups; /* [ngroups] */
    uint32_t ngroups, length;
    uint32_t *places; /* [length], sorted by group, then by place */
    struct pairs index;
};

struct root {
    struct root_group *groups; /* [ngroups] */
    uint32_t ngroups, cap_groups;
    struct pairs group_index; /* (id, 0) */
    struct root_op *ops;      /* [nops], some of them unused */
    uint32_t nops, cap_ops;
    uint32_t *free_ops; /* a stack */
    uint32_t nfree;
    struct pairs op_index; /* (group, k) */
    uint32_t *touched;     /* ring of cap_groups: groups in which an operation may be ready */
    uint32_t first_touched, ntouched;
    uint32_t begun, drained; /* ranks */
    uint64_t jumped;         /* sum over ops */

    struct rounds rounds;
    struct root_logged *history; /* ring of ROUNDS_LOG, as rounds.log */
    struct pairs seen_index;     /* (rounds id, 0) into seen */
    uint64_t *seen;
    uint32_t nseen, cap_seen;
    uint64_t looked_at;    /* length of the log when it was last searched for a period */
    uint32_t backoff;      /* how often freeze_after was doubled */
    struct root_plan plan; /* the last pattern */
    struct buf log;        /* an ORDER_LOG message that is being written */
    struct order_ref run;  /* the last run in it, not written yet */
    uint32_t nrun;
};

/* ---- a node -------------------------------------------------------------------------------- */

/* Announcements that were not sent yet. */
struct order_up {
    struct buf inits; /* records ORDER_INIT */
    struct buf drops; /* records ORDER_DROP */
    uint32_t begun, drained;
    struct order_announced *ops; /* [nops] */
    uint32_t nops, cap;
    struct pairs index; /* (group, k) */
};

struct order {
    struct order_config config;
    struct order_ops ops;
    void *ctx;
    int *children;
    int nchildren;
    bool is_root;
    int failed;
    uint64_t generation;
    bool frozen; /* a pattern is in force */

    struct order_group **groups;
    uint32_t ngroups, cap_groups;
    struct pairs group_index; /* (id, 0) */
    struct list launch;       /* order_op.at: to be launched, in this order */
    struct list waiting;      /* order_op.at: neither logged nor of the pattern */
    struct list spare;
    bool draining;         /* no operation is announced before order_drained() */
    bool planned_launched; /* an operation was launched by the pattern in force */
    bool holds;            /* order_hold() */
    bool left;             /* this rank cannot follow the pattern any more */
    bool asked;            /* a rank at or below this node cannot follow the pattern any more */
    bool ask_sent;         /* the parent was told */
    struct order_group **pattern; /* [npattern] this rank's part of a round */
    uint32_t npattern, at;        /* at: of the next announcement that follows the pattern */
    struct order_ref last;        /* last announced in this generation */
    bool has_last;

    struct order_up up;
    struct buf msg;
    struct root root;
    struct order_stats stats;
};

/* order.c */
struct order_group *order_find(const struct order *o, uint64_t id);
int order_begin(struct order *o, struct buf *b, enum order_message type);
void order_send_down(struct order *o, const struct buf *msg);

/* order_follow.c */
int order_follow_log(struct order *o, struct reader *r);
int order_follow_pattern(struct order *o, struct reader *r);
int order_follow_thaw(struct order *o, const struct reader *r);

/* The operation is appended to the pattern's launches, if it is what the pattern has next. */
void order_match(struct order *o, struct order_op *op);

/* order_up.c: all -ENOMEM */
void order_up_fini(struct order_up *u);
void order_up_clear(struct order_up *u);
int order_announce_begin(struct order *o); /* in a new log: INITs, and if it need not drain OPs */
int order_announce_drained(struct order *o);
int order_announce_op(struct order *o, const struct order_op *op);
int order_announce_drop(struct order *o, const struct order_group *g);
int order_up_recv(struct order *o, struct reader *r);
int order_up_send(struct order *o);
int order_announced_read(struct order_announced *a, uint32_t size, struct reader *r);

/* order_root.c */
int root_init(struct order *o);
void root_fini(struct root *root);
void root_reset(struct root *root); /* a generation begins */
int root_take(struct order *o);     /* takes order.up, and logs what is ready */
uint32_t root_op_get(struct root *root, struct order_ref ref); /* adds it; PAIRS_NONE: -ENOMEM */

/* Removes an operation that is logged, dropped, or launched by all of its ranks. Those that it
 * blocks can go on once nothing blocks it. */
void root_op_remove(struct root *root, uint32_t i);
void root_touch(struct root *root, uint32_t group);

/* order_left.c */
int left_begin(struct order *o);

/* order_plan.c */
void plan_fini_root(struct root_plan *p);
int plan_first(struct order *o);
int plan_propose(struct order *o);

/* How often the ranks have repeated the last pattern, as far as the INITs say. */
uint64_t plan_rounds(const struct root *root);

bool plan_has(const struct root_plan *p, uint64_t group);

/* The group's first operation that has this place in the pattern or a later one. Only if
 * plan_has(). */
uint64_t plan_from(const struct root_plan *p, uint64_t group, uint64_t place);

/* The place of an operation, counted from the beginning of the pattern. false: it has none. */
bool plan_place(const struct root_plan *p, struct order_ref ref, uint64_t *ret);

#endif
