/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_rank: see nccl_rank.h.
 */
#include "tests/harness/nccl_rank.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/rank.h"

static int copy(void *ctx, void *dst, const void *src, size_t bytes, struct CUstream_st *stream)
{
    memmove(dst, src, bytes); /* at once, because the stream is empty when a test launches */
    return 0;
}

int nccl_rank_open(struct nccl_rank *r, const char *version, int rank, int size,
                   struct nccl_meeting *meeting)
{
    struct nccl_place place = {.origin = NCCL_ASKED};
    const struct nccl_host host = {.ctx = r, .copy = copy};
    fake_nccl_path(version, place.path);
    r->rank = rank;
    r->size = size;
    r->meeting = meeting;
    r->stream = (struct CUstream_st *)r;
    if (!r->limits.init_ms)
        r->limits = (struct nccl_limits){.init_ms = 10000, .launch_ms = 10000, .abort_ms = 5000};
    int rc = nccl_api_open(&place, &r->api, &r->err);
    if (rc == 0)
        rc = nccl_comm_create(&r->api, &host, &r->limits, &r->comm, &r->err);
    void *handle = dlopen(r->api.path, RTLD_NOW | RTLD_NOLOAD);
    void *symbol = handle ? dlsym(handle, "fake_nccl_idle") : NULL;
    memcpy(&r->idle, &symbol, sizeof(symbol));
    symbol = handle ? dlsym(handle, "fake_nccl_live") : NULL;
    memcpy(&r->live, &symbol, sizeof(symbol));
    if (rc < 0 || !r->idle || !r->live)
        printf("rank %d: %s\n", rank, err_text(&r->err));
    return r->idle && r->live ? rc : -ENOSYS;
}

bool nccl_rank_close(struct nccl_rank *r)
{
    bool clean = nccl_comm_destroy(r->comm);
    r->comm = NULL;
    nccl_steps_fini(&r->steps);
    return clean && r->live() == 0;
}

static bool over(const struct nccl_rank *r, uint64_t deadline)
{
    return deadline_passed(deadline) || (r->stop && atomic_load(r->stop));
}

int nccl_rank_drive(struct nccl_rank *r, int ms)
{
    uint64_t deadline = deadline_in_ms((uint64_t)ms);
    for (;;) {
        r->err = (struct err){0};
        int rc = nccl_comm_progress(r->comm, &r->err);
        if (rc != 1)
            return rc;
        if (over(r, deadline))
            return -ETIME;
        nap_ms(1);
    }
}

/* Rank 0's part of nccl_rank_begin(). */
static int send_id(struct nccl_rank *r, uint64_t deadline)
{
    int rc;
    while ((rc = nccl_comm_id(r->comm, r->size, &r->meeting->round[r->round].id, &r->err)) == 1) {
        if (over(r, deadline))
            return -ETIME;
        nap_ms(1);
    }
    atomic_store(&r->meeting->round[r->round].there, rc < 0 ? rc : 1);
    return rc;
}

int nccl_rank_begin(struct nccl_rank *r, int round, int rank, int size)
{
    uint64_t deadline = deadline_in_ms(20000);
    int there, rc = 0;
    r->round = round;
    r->rank = rank;
    r->size = size;
    if (round >= NCCL_RANK_ROUNDS)
        return -E2BIG;
    if (rank == 0)
        rc = send_id(r, deadline);
    while (rc == 0 && (there = atomic_load(&r->meeting->round[round].there)) <= 0) {
        if (there < 0 || over(r, deadline))
            return there < 0 ? -ECONNRESET : -ETIME;
        nap_ms(1);
    }
    return rc < 0 ? rc
                  : nccl_comm_start(r->comm, rank, size, &r->meeting->round[round].id, &r->err);
}

int nccl_rank_start(struct nccl_rank *r, int round, int rank, int size)
{
    int rc = nccl_rank_begin(r, round, rank, size);
    return rc < 0 ? rc : nccl_rank_drive(r, 20000);
}

int nccl_rank_run(struct nccl_rank *r, const struct coll_op *op)
{
    const struct nccl_means means = {.version = r->api.version, .cuda = r->api.cuda};
    r->err = (struct err){0};
    int rc = nccl_steps_make(&means, op, r->rank, r->size, &r->steps, &r->err);
    if (rc == 0)
        rc = nccl_comm_launch(r->comm, &r->steps, r->stream, &r->err);
    if (rc == 0)
        rc = nccl_rank_drive(r, 20000);
    uint64_t deadline = deadline_in_ms(r->patience_ms ? (uint64_t)r->patience_ms : 20000);
    while (rc == 0 && !r->idle(r->stream)) {
        if (over(r, deadline))
            return -ETIME;
        nap_ms(1);
        rc = nccl_comm_progress(r->comm, &r->err);
    }
    return rc;
}

bool nccl_rank_meet(struct nccl_rank *r, int place, int size, int ms)
{
    uint64_t deadline = deadline_in_ms((uint64_t)ms);
    atomic_fetch_add(&r->meeting->arrived[place], 1);
    while (atomic_load(&r->meeting->arrived[place]) < size) {
        if (deadline_passed(deadline))
            return false;
        nap_ms(1);
    }
    return true;
}

int nccl_rank_check(struct nccl_rank *r)
{
    float in[1000], out[1000];
    const struct coll_tensor t = {in, out, 1000};
    const struct coll_op op = {.kind = HVD_ALLREDUCE,
                               .dtype = HVD_FLOAT32,
                               .op = HVD_SUM,
                               .prescale = 1,
                               .postscale = 1,
                               .contributors = r->size,
                               .tensors = &t,
                               .n = 1};
    for (int i = 0; i < 1000; i++)
        in[i] = (float)((1 << r->rank) * (i + 1));
    int rc = nccl_rank_run(r, &op);
    for (int i = 0; i < 1000 && rc == 0; i++) {
        if (out[i] != (float)(((1 << r->size) - 1) * (i + 1)))
            rc = -EBADMSG;
    }
    return rc;
}
