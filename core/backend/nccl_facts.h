/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_facts: what each rank says about its GPU and its NCCL before a communicator is made, and
 * what all of them together make of it. Pure: every rank is given the same and comes to the same.
 *
 * struct nccl_fact travels as it is between ranks of one build on one architecture.
 */
#ifndef HVD_BACKEND_NCCL_FACTS_H
#define HVD_BACKEND_NCCL_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct nccl_fact {
    int32_t rank;    /* in this epoch: what people read; whoever judges sets it */
    char host[64];   /* the same for ranks of one machine and no others (a boot id will do) */
    char name[64];   /* of the machine, for people */
    int32_t nccl;    /* version, 22707; 0: none */
    int32_t cuda;    /* that it was built for, 12080 for 12.8; 0: unknown */
    int32_t driver;  /* cuDriverGetVersion(), 13000; 0: there is none */
    int32_t gpus;    /* that this process sees */
    int32_t sm;      /* of its own GPU, 90; 0: unknown */
    uint8_t gpu[16]; /* its UUID; zero: it has no GPU */
    bool hides_gpus; /* CUDA_VISIBLE_DEVICES is there and empty, or -1 */
    char why[400];   /* nccl == 0: why not; else the file */
};

enum nccl_verdict {
    NCCL_GOOD,
    NCCL_WARN, /* works; the sentence is worth a line in the log */
    NCCL_BAD,  /* no communicator can be made */
};

/* The gravest of what there is to say, as one line with the doctor's name and code for it; dst is
 * empty where all is well. */
enum nccl_verdict nccl_facts_judge(const struct nccl_fact *facts, int n, char *dst, size_t size);

/* ---- after a loss ---- */

/* What each survivor says of its communicator. */
struct nccl_survivor {
    uint64_t mark;   /* nccl_comm_mark() */
    int32_t rank;    /* in it; -1: it is new here */
    bool ready;      /* nothing has failed or was given up */
    bool can_shrink; /* nccl_comm_can_shrink() */
};

enum nccl_reform {
    NCCL_REFORM_KEEP,   /* it is theirs already: the same ranks in the same order */
    NCCL_REFORM_SHRINK, /* nccl_comm_shrink() without the ranks in excluded */
    NCCL_REFORM_NEW,    /* abort, start */
};

/* was: ranks of the old one. excluded: [was], filled for NCCL_REFORM_SHRINK, *ret_n of them. all:
 * in the order of their new ranks, which shrinking must come to by itself. */
enum nccl_reform nccl_reform_choose(const struct nccl_survivor *all, int n, int was, int *excluded,
                                    int *ret_n);

#endif
