/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_facts: what each rank reports about its GPU and NCCL before a communicator is created, and
 * the verdict on all reports, which is pure: from the same reports every rank gets the same
 * verdict. struct nccl_fact is sent as bytes, between ranks of one build and architecture.
 */
#ifndef HVD_BACKEND_NCCL_FACTS_H
#define HVD_BACKEND_NCCL_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/backend/nccl_abi.h"
#include "core/base/err.h"

struct cuda_device;
struct nccl_api;

struct nccl_fact {
    int32_t rank;    /* in this epoch, for messages */
    char host[64];   /* the same for ranks of one machine and no others (a boot id will do) */
    char name[64];   /* host name, for messages */
    int32_t nccl;    /* NCCL's version, such as 22707; 0: it cannot be used */
    int32_t cuda;    /* the CUDA version that NCCL was built for, 12080 for 12.8; 0: unknown */
    int32_t driver;  /* cuDriverGetVersion(), such as 13000; 0: no driver */
    int32_t gpus;    /* number of GPUs that this process sees */
    int32_t sm;      /* compute capability of its own GPU, such as 90; 0: unknown */
    uint8_t gpu[16]; /* what identifies it on this host; zero: it has no GPU */
    bool hides_gpus; /* CUDA_VISIBLE_DEVICES is set, and empty or -1 */
    bool shares_gpu; /* NCCL_MULTI_RANK_GPU_ENABLE is set, and not 0 */
    bool kernels;    /* this rank has hvd's kernels; they are used only if every rank has them */
    bool fallback;   /* it allows that tensors go through the host's memory (device.h) */
    bool newcomer;   /* it has joined, and has not taken part in a choice of the way yet */
    char why[400];   /* nccl == 0: why not; otherwise the path of the library */
    struct nccl_abi_id id; /* of rank 0: for the communicator */
};

/* Fills everything but id, kernels, fallback and newcomer. no_nccl: why NCCL cannot be used; code
 * 0: it can, and api is it. */
void nccl_fact_fill(struct nccl_fact *fact, int rank, const struct cuda_device *device,
                    const struct nccl_api *api, const struct err *no_nccl);

enum nccl_verdict {
    NCCL_GOOD,
    NCCL_WARN, /* NCCL works; the sentence is logged */
    NCCL_BAD,  /* no communicator can be made */
};

/* The gravest finding, as one line with the id and code of hvd-doctor's check: NCCL_BAD: an error
 * for the user, -ENOTSUP; NCCL_WARN: a line for the log, with code 0; NCCL_GOOD: empty. */
enum nccl_verdict nccl_facts_judge(const struct nccl_fact *facts, int n, struct err *ret);

#endif
