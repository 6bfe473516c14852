/* SPDX-License-Identifier: Apache-2.0
 *
 * direct_allreduce: a small allreduce over several hosts in log2(hosts) rounds: the first rank of
 * every host gets the inputs of all hosts (Bruck's allgather) and does all sums itself. Ranks that
 * share a host sum there first and get the result from their first rank (shm_pieces.h). The
 * sums are those of the rings, in the same order and with the same intermediate rounding: piece
 * l x hosts + k starts at host k. So the bits do not depend on the choice between the two, and the
 * choice may depend on the size of the whole batch.
 */
#include <string.h>

#include "core/coll/algorithms.h"
#include "core/coll/layout.h"
#include "core/coll/shm_pieces.h"

/* Bytes up to which the ring's 2(p-1) rounds cost more than the bytes that it saves. Between two
 * hosts it saves none. */
static size_t direct_max(int hosts)
{
    size_t fair = ((size_t)1 << 20) / (size_t)hosts, most = (size_t)(hosts == 2 ? 256 : 16) << 10;
    return fair < most ? fair : most;
}

enum phase { SUM_LOCALLY, EXCHANGE, HAND_OUT };

struct direct {
    struct layout whole; /* one piece: tensor after tensor */
    struct shm_share share;
    struct reduce_plan plan;
    enum phase phase;
    bool shares;       /* this rank sums with the ranks of its host first */
    bool first;        /* this rank is the first of the ranks that share its host */
    size_t bytes;      /* bytes of one packed input */
    uint8_t *gathered; /* [hosts] packed inputs: entry i is that of this host + i */
    uint8_t *result;   /* packed */
    int distance;
    struct message out, in;
    bool begun, sent, received;
};

static bool direct_applies(const struct mesh *mesh, const struct coll_op *op)
{
    return op->kind == HVD_ALLREDUCE && mesh->hosts > 1 &&
           coll_count(op) * hvd_dtype_size(op->dtype) <= direct_max(mesh->hosts);
}

static void pack(const struct direct *d, uint8_t *dst)
{
    struct layout_walk w = layout_walk(0);
    struct layout_run run;
    while (layout_next(&d->whole, &w, SIZE_MAX, &run)) {
        memcpy(dst, run.in, run.count * d->whole.elem);
        dst += run.count * d->whole.elem;
    }
}

static void unpack(const struct direct *d, const uint8_t *src)
{
    struct layout_walk w = layout_walk(0);
    struct layout_run run;
    while (layout_next(&d->whole, &w, SIZE_MAX, &run)) {
        memcpy(run.out, src, run.count * d->whole.elem);
        src += run.count * d->whole.elem;
    }
}

static int direct_start(struct coll *coll, void *state, struct err *err)
{
    struct direct *d = state;
    const struct coll_op *op = coll->op;
    const struct mesh *mesh = coll->mesh;
    size_t hosts = (size_t)mesh->hosts;
    d->whole = (struct layout){op->tensors, op->n, hvd_dtype_size(op->dtype), 1};
    d->share = (struct shm_share){.layout = &d->whole, .first = 0, .stride = 1, .owners = 1};
    d->plan = coll_reduce_plan(op);
    d->bytes = coll_count(op) * d->whole.elem;
    d->shares = mesh->local_size > 1;
    d->first = mesh->local_rank == 0;
    d->gathered = d->first ? coll_work(coll, (hosts + 1) * d->bytes) : NULL;
    if (d->first && !d->gathered)
        return err_set(err, ENOMEM, "no memory for an allreduce of %zu bytes", d->bytes);
    d->result = d->first ? d->gathered + hosts * d->bytes : NULL;
    d->distance = 1;
    d->begun = false;
    d->phase = d->shares ? SUM_LOCALLY : EXCHANGE;
    if (d->phase == SUM_LOCALLY)
        shm_pieces_reduce_scatter(coll->pieces, &d->share, &d->plan, false, d->gathered);
    else if (d->first)
        pack(d, d->gathered);
    return 0;
}

/* Starts a round: sends the inputs that this rank has (at most `distance` of them) to the host that
 * is `distance` below, and receives as many from the host that is `distance` above. */
static int begin_round(struct coll *coll, struct direct *d)
{
    const struct mesh *mesh = coll->mesh;
    int p = mesh->hosts, me = mesh->host;
    struct link *down = coll_link(coll, mesh_rank_at(mesh, (me - d->distance + p) % p, 0));
    struct link *up = coll_link(coll, mesh_rank_at(mesh, (me + d->distance) % p, 0));
    if (!down || !up)
        return -ENOMEM;
    int inputs = d->distance < p - d->distance ? d->distance : p - d->distance;
    size_t len = (size_t)inputs * d->bytes;
    uint64_t tag = coll_tag(coll, (unsigned)d->distance, 0);
    message_start(&d->out, down, tag, d->gathered, len);
    message_start(&d->in, up, tag, d->gathered + (size_t)d->distance * d->bytes, len);
    d->begun = true;
    d->sent = d->received = false;
    return 0;
}

/* Runs all rounds; 0, 1, -errno. */
static int exchange(struct coll *coll, struct direct *d)
{
    while (d->distance < coll->mesh->hosts) {
        int rc;
        if (!d->begun && (rc = begin_round(coll, d)) < 0)
            return rc;
        if (!d->sent) {
            if ((rc = message_send(&d->out, d->out.x.len)) < 0)
                return rc;
            d->sent = rc == 0;
        }
        if (!d->received) {
            if ((rc = message_recv(&d->in)) < 0)
                return rc;
            d->received = rc == 0;
        }
        if (!d->sent || !d->received)
            return 1;
        d->begun = false;
        d->distance *= 2;
    }
    return 0;
}

/* Sums count elements at off of every packed input, host after host from start on. Inputs of
 * hosts with several ranks are sums and carry the prescale already. */
static void sum_range(const struct direct *d, const struct mesh *mesh, int start, size_t off,
                      size_t count)
{
    uint8_t *dst = d->result + off;
    for (int i = 0; i < mesh->hosts; i++) {
        int host = (start + i) % mesh->hosts;
        int place = (host - mesh->host + mesh->hosts) % mesh->hosts;
        const void *src[] = {dst, d->gathered + (size_t)place * d->bytes + off};
        const bool prescaled[] = {true, mesh->local_size_of[host] > 1};
        if (i > 0)
            reduce(&d->plan, dst, src, 2, count, prescaled, i == mesh->hosts - 1, false);
        else if (d->plan.prescale == 1.0 || prescaled[1])
            memcpy(dst, src[1], count * d->whole.elem);
        else
            reduce(&d->plan, dst, &src[1], 1, count, NULL, false, false);
    }
}

static void sum(const struct direct *d, const struct coll_op *op, const struct mesh *mesh)
{
    size_t pieces = (size_t)mesh->lanes * (size_t)mesh->hosts, off = 0;
    for (size_t i = 0; i < op->n; i++) {
        size_t all = op->tensors[i].count;
        /* Longer pieces come first: after an empty piece all are empty. */
        for (size_t q = 0; q < pieces; q++) {
            size_t count = layout_begin(all, pieces, q + 1) - layout_begin(all, pieces, q);
            if (count == 0)
                break;
            sum_range(d, mesh, (int)(q % (size_t)mesh->hosts), off, count);
            off += count * d->whole.elem;
        }
    }
}

static void begin_hand_out(struct coll *coll, struct direct *d)
{
    d->phase = HAND_OUT;
    shm_pieces_allgather(coll->pieces, &d->share, d->result);
    if (d->first)
        shm_pieces_set_ready(coll->pieces, d->bytes);
}

static int direct_progress(struct coll *coll, void *state)
{
    struct direct *d = state;
    int rc = 0;
    if (d->phase == SUM_LOCALLY) {
        if ((rc = shm_pieces_progress(coll->pieces)) != 0)
            return rc;
        d->phase = EXCHANGE;
    }
    if (d->phase == EXCHANGE) {
        if (d->first && (rc = exchange(coll, d)) != 0)
            return rc;
        if (d->first)
            sum(d, coll->op, coll->mesh);
        if (!d->shares) {
            unpack(d, d->result);
            return 0;
        }
        begin_hand_out(coll, d);
    }
    return shm_pieces_progress(coll->pieces);
}

static void direct_cancel(struct coll *coll, void *state)
{
    struct direct *d = state;
    message_cancel_send(&d->out);
    message_cancel_recv(&d->in);
    if (d->shares)
        shm_pieces_cancel(coll->pieces);
}

const struct algorithm direct_allreduce_algorithm = {
    .name = "direct",
    .state_size = sizeof(struct direct),
    .applies = direct_applies,
    .start = direct_start,
    .progress = direct_progress,
    .cancel = direct_cancel,
};
