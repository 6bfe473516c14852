/* SPDX-License-Identifier: Apache-2.0
 *
 * boot: how this rank finds the other ranks: gives rank, size, a key, and a card from each rank.
 *
 * A source is a launcher: the agent (hvdrun, Kubernetes), PMIx (mpirun, srun), Slurm without PMIx,
 * an mpirun that only numbers its ranks, the environment (HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS,
 * HVD_KEY_FILE), torchrun (in Python; under it a C program needs HVD_RENDEZVOUS), or none (one
 * rank). The only task of a source is to exchange a small card among all ranks. Calls block until
 * the deadline at most. hvd_init() calls them from one thread.
 */
#ifndef HVD_BOOT_BOOT_H
#define HVD_BOOT_BOOT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/ctl.h"
#include "core/base/err.h"

#define BOOT_KEY_SIZE 32
#define BOOT_CARD_MAX CTL_CARD_MAX
#define BOOT_SIZE_MAX 65536 /* ranks */

struct boot;

/* The numbers that a joiner would get if it joined now. */
struct boot_numbers {
    uint32_t epoch; /* epoch of the next roster */
    int rank, size, local_rank, local_size, cross_rank, cross_size, place;
};

/* The operations of one source. The tables are const; boot.c has the probe order. */
struct boot_ops {
    const char *name; /* "agent", "env", "torchrun", "pmix", "mpirun", "slurm", "torch", "alone" */
    /* 1: this launcher started us; 0: it did not; -errno: it did, but its settings are wrong. Fills
     * rank, size and has_key. */
    int (*probe)(struct boot *boot, struct err *err);
    /* Gives this rank's card, fills boot->cards with every rank's, and key. 1: see boot_exchange().
     */
    int (*exchange)(struct boot *boot, const struct buf *card, uint64_t deadline, struct err *err);
    void (*fini)(struct boot *boot);
};

struct boot {
    const struct boot_ops *ops;
    int rank, size;
    uint32_t epoch;
    uint8_t key[BOOT_KEY_SIZE]; /* the job's key, after boot_exchange(); boot_fini() wipes it */
    bool has_key; /* valid from boot_open() on: there is, or will be, a secret key. false: listen on
                     loopback only, unless HVD_INSECURE=1 */
    struct buf *cards; /* [size], in rank order, as each rank sent it */
    /* [size] whether the rank has the same agent as this rank; NULL without an agent */
    bool *local;
    bool elastic; /* valid from boot_open() on: losses are repaired (only with an agent) */
    int why;      /* enum ctl_why of the next exchange; boot_open() sets CTL_JOIN */
    /* of a mesh within another one: what its ranks are called in messages; NULL: as they are
     * numbered */
    const int *names;
    const _Atomic int *cancel; /* NULL, or a flag: a value other than 0 ends an exchange at once */
    /* Called now and then while a mesh within another one is made: an error ends that. */
    int (*go_on)(void *ctx, struct err *err);
    void *go_on_ctx;
    struct ctl ctl; /* on agent_fd; the mesh continues to use it */
    uint64_t away;  /* ns by which the agent has extended the last exchange: see CTL_AWAY */
    _Atomic uint32_t change_heard; /* newest planned change that the agent announced */
    uint32_t *members; /* [size], member with that rank; a member number is never reused. Without an
                          agent: the rank */
    int *places;       /* [size], the ranks' places, which rise with the ranks. Equal to the ranks
                          unless the job keeps places */
    bool *is_new;      /* [size] whether the rank was in no epoch before */
    bool *starts;      /* [size] whether its process was in none: it has nothing of older epochs */
    bool *broken;      /* [size] whether it is part of a broken unit (engine/units.h) */
    bool keeps_places; /* of the job; with the first roster */
    uint32_t change;   /* number of the last planned change that this roster includes */
    uint64_t departed_done; /* operations finished by members that had left by then (the maximum) */
    struct boot_numbers numbers; /* valid after boot_exchange() returned 1 */
    bool has_lifeline;
    int agent_fd; /* control socket to the agent, -1 without one. Belongs to the process: stays open
                     over boot_fini() */
    uint64_t refused; /* connections refused so far: wrong key, no hvd frame, not of this job */
    void *state;      /* private data of the source */
};

/* Finds the launcher. 0 or -errno. */
int boot_open(struct boot *boot, struct err *err);

/* Gives this rank's card and gets every rank's. Under an agent it is called again for each epoch.
 * Results other than 0 and -errno of a failure, in an elastic job only: -ESHUTDOWN: this rank was
 * asked to leave, or *boot->cancel was set. -EAGAIN: a rank of the roster is lost already, so ask
 * again. 1: the members train, and this joiner (why CTL_JOIN) has its provisional numbers; its card
 * is forgotten. To join, the joiner asks again with why CTL_ENTER, which waits for the members'
 * next step boundary and warns when that takes long. While the agent's coordinator does not answer,
 * the deadline moves on: boot_extended() returns the new one. */
int boot_exchange(struct boot *boot, const struct buf *card, uint64_t deadline, struct err *err);

/* Returns the deadline of the last exchange, later by the time in which the agent's coordinator was
 * away. */
static inline uint64_t boot_extended(const struct boot *boot, uint64_t deadline)
{
    return deadline == UINT64_MAX ? deadline : deadline + boot->away;
}

/* Tells the agent, if there is one, that this rank leaves: see CTL_BYE. done: operations that it
 * has finished. */
void boot_bye(struct boot *boot, int status, uint64_t done, const char *text);

/* For sources. Allocates size empty cards (with_local: and boot->local); -ENOMEM. Call
 * boot_drop_cards() before size changes. */
int boot_make_cards(struct boot *boot, bool with_local, struct err *err);
void boot_drop_cards(struct boot *boot);

/* The value of a launcher's variable; -1 when it is unset or not a number. */
int64_t boot_number(const char *name);

/* Takes the number of a planned change from the body of a CTL_CHANGE. The body is untrusted: one
 * that is malformed is ignored. */
void boot_heard_change(struct boot *boot, const void *body, size_t len);

/* Holds the lifeline that came with a CTL_LIFELINE: until boot_fini() the agent learns at once when
 * this process dies. The caller keeps fd. */
void boot_take_lifeline(struct boot *boot, int fd);

/* Wipes the key, frees the cards. Also after a failed boot_open(); may be repeated. */
void boot_fini(struct boot *boot);

/* In the child after fork(2): closes agent_fd. Async-signal-safe. */
void boot_after_fork(struct boot *boot);

extern const struct boot_ops boot_agent_ops, boot_env_ops, boot_torchrun_ops, boot_pmix_ops,
    boot_mpirun_ops, boot_slurm_ops, boot_torch_ops, boot_alone_ops;

#endif
