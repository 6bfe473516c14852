/* SPDX-License-Identifier: Apache-2.0
 *
 * boot: how this rank finds the others: rank, size, a key, and a card from each rank.
 *
 * A source is a launcher: the agent (hvdrun, Kubernetes), PMIx (mpirun, srun), Slurm without
 * it, an mpirun that only numbers its ranks, the environment (HVD_RANK, HVD_SIZE, HVD_RENDEZVOUS,
 * HVD_KEY_FILE), torchrun (in Python; a program in C needs HVD_RENDEZVOUS under it), or nobody (a
 * world of 1). Each knows how to exchange a small card among all ranks; nothing else is asked of
 * it. Blocks, bounded by the deadline; called once by hvd_init().
 */
#ifndef HVD_BOOT_BOOT_H
#define HVD_BOOT_BOOT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/ctl.h"
#include "core/base/err.h"

#define BOOT_KEY_SIZE 32
#define BOOT_CARD_MAX 4096
#define BOOT_SIZE_MAX 65536 /* ranks */

struct boot;

/* Where a rank that joins while others train would be, if it came in now. */
struct boot_place {
    uint32_t epoch; /* of the world that it would come into */
    int rank, size, local_rank, local_size, cross_rank, cross_size;
};

/* How a launcher is talked to. Tables of this kind are const; probe order is in boot.c. */
struct boot_ops {
    const char *name; /* "agent", "env", "torchrun", "pmix", "mpirun", "slurm", "torch", "alone" */
    /* 1: this launcher started us; 0: it did not; -errno: it did, but something is wrong. Fills
     * rank, size and has_key. */
    int (*probe)(struct boot *boot, struct err *err);
    /* Gives our card, gets everybody's: boot->cards. Fills key. 1: see boot_exchange() */
    int (*exchange)(struct boot *boot, const struct buf *card, uint64_t deadline, struct err *err);
    void (*fini)(struct boot *boot);
};

struct boot {
    const struct boot_ops *ops;
    int rank, size;
    uint32_t epoch;
    uint8_t key[BOOT_KEY_SIZE]; /* the job's, after boot_exchange(); wiped by boot_fini */
    bool has_key;               /* from boot_open() on: there is or will be a key that is secret.
                                 * false: listen on loopback only, unless HVD_INSECURE=1 */
    struct buf *cards;          /* [size], in rank order, as each rank gave it */
    bool *local;                /* [size], same agent as this rank; NULL without an agent */
    bool elastic;               /* from boot_open() on: losses are repaired (agent only) */
    int why;                    /* enum ctl_why of the next exchange; boot_open() says CTL_JOIN */
    const _Atomic int *cancel;  /* an exchange that is to end at once when this is not 0; NULL */
    struct ctl ctl;             /* of agent_fd; the mesh goes on with it */
    _Atomic uint32_t change_heard; /* the newest planned change that the agent has told of */
    uint32_t *members;             /* [size], who has that rank: never used again; the rank itself
                                    * without an agent */
    bool *is_new;                  /* [size], was in no epoch before */
    uint32_t change;               /* the last planned change that is in this roster */
    uint64_t left_done;            /* operations that one who had left by then had finished */
    struct boot_place place;       /* after an exchange that has returned 1 */
    bool has_lifeline;
    int agent_fd;     /* control socket to the agent, -1 without one. The process's: stays
                       * open over boot_fini() */
    uint64_t refused; /* connections refused so far: wrong key, garbage, strangers */
    void *state;      /* of ops */
};

/* Finds the launcher. */
int boot_open(struct boot *boot, struct err *err);

/* Gives the card, gets everybody's; under an agent again and again, for each epoch. Only in an
 * elastic job: -ESHUTDOWN: this rank is not to be in it; -EAGAIN: one that is in it is lost already
 * (ask again); 1: others train, this rank (why CTL_JOIN) has a place and its card is forgotten: to
 * come in it asks again, with why CTL_ENTER. That one waits for the others' next boundary, and says
 * so when it takes long. */
int boot_exchange(struct boot *boot, const struct buf *card, uint64_t deadline, struct err *err);

/* Tells the agent, where there is one, that this rank leaves: see CTL_BYE. done: operations that it
 * has finished. */
void boot_bye(struct boot *boot, int status, uint64_t done, const char *text);

/* For the sources: room for size cards (and for local, with an agent), -ENOMEM; and its end, which
 * is due before size changes. */
int boot_make_cards(struct boot *boot, bool with_local, struct err *err);
void boot_drop_cards(struct boot *boot);

/* A number that a launcher has set, -1 where the variable is absent or something else. */
int64_t boot_number(const char *name);

/* Takes the body of a CTL_CHANGE. Foreign bytes. */
void boot_heard_change(struct boot *boot, const void *body, size_t len);

/* Takes a CTL_LIFELINE's descriptor, which stays the caller's: from here on until boot_fini() the
 * agent knows at once when this process dies. */
void boot_take_lifeline(struct boot *boot, int fd);

/* Wipes the key, frees the cards. After a boot_open() that failed too; repeatable. */
void boot_fini(struct boot *boot);

/* In the child after fork(2): closes agent_fd. Async-signal-safe. */
void boot_after_fork(struct boot *boot);

extern const struct boot_ops boot_agent_ops, boot_env_ops, boot_torchrun_ops, boot_pmix_ops,
    boot_mpirun_ops, boot_slurm_ops, boot_torch_ops, boot_alone_ops;

#endif
