/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of an elastic job across epochs: ranks send and receive at random over links of this
 * file, which end at random moments, for each rank at another one. Some ranks are lost, others get
 * other numbers, joiners come. Between survivors each message is received exactly once, in the
 * order of its sender and tag, and a sender's bytes are changed as soon as its operation has ended.
 * The memory of some operations is a GPU's, so that p2p has to ask for their bytes, or some large
 * ones fly.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/p2p/p2p.h"
#include "tests/harness/air.h"
#include "tests/harness/effort.h"
#include "tests/harness/p2p_links.h"
#include "tests/harness/rank.h"

enum {
    MOST = 24, /* members, joiners and lost ones included */
    RANKS = P2P_LINKS_RANKS,
    FIRST = 4,
    TAGS = 3, /* the last one is received from any rank */
    ANY_TAG = TAGS - 1,
    LETTERS = 6000,
    BIGGEST = 60000,
    HUGE_ONE = 2500000, /* more than two frames; not from any rank */
    CAPACITY = 9000,    /* bytes that a link holds; P2P_LINKS_WIDE in some jobs */
    FLIES = 17000,      /* bytes from which messages of staged ends may fly */
};

/* An operation, and the k-th message of its sender to its receiver with its tag. */
struct letter {
    struct p2p_op op;
    int from, to; /* members; from is -1: any */
    uint32_t tag;
    int k;
    bool ended, opened;
    int code;
    uint8_t *data;
    uint8_t *part;  /* P2P_PART bytes; NULL: p2p uses none */
    size_t part_at; /* of a send: its position in data */
};

struct member {
    bool lives, lost;
    struct mesh mesh;
    struct p2p *p;
};

static struct {
    uint64_t random;
    struct member members[MOST];
    int of[MOST], n; /* members by rank */
    int host_of[MOST];
    struct letter *letters;
    int nletters, nmembers;
    bool small; /* nearly all messages have 16 KiB: copies and credit run out */
    int sent[MOST][MOST][TAGS], asked[MOST][MOST][TAGS];
    /* What flies from one member to another, in order: the senders' and the receivers' ends. */
    struct air air[2][MOST][MOST];
} w;

static int flights; /* of all jobs */

static int pick(int n)
{
    return (int)(rank_random(&w.random) % (uint64_t)n);
}

/* ---- the memory of a GPU --------------------------------------------------------------------- */

static struct letter *letter_of(struct p2p_op *op)
{
    return (struct letter *)((char *)op - offsetof(struct letter, op));
}

/* The program's memory, at which p2p's pointer only seems to point. */
static uint8_t *memory_of(struct p2p_op *op)
{
    return letter_of(op)->data;
}

static const uint8_t *fetch(void *ctx, struct p2p_op *op)
{
    struct letter *l = letter_of(op);
    size_t left = op->bytes - op->moved;
    (void)ctx;
    assert_true(op->sends && op->staged && !l->ended && left > 0);
    if (pick(3) == 0)
        return NULL;
    l->part = l->part ? l->part : malloc(P2P_PART);
    l->part_at = op->moved;
    memcpy(l->part, memory_of(op) + op->moved, left < P2P_PART ? left : P2P_PART);
    return l->part;
}

static struct air *air_of(const struct p2p_op *op, const struct letter *l)
{
    int from = op->sends ? l->from : w.of[op->from];
    return &w.air[!op->sends][from][l->to];
}

/* Ranks may have got other numbers since it began to fly. */
static void leave_air(const struct p2p_op *op)
{
    for (int i = 0; i < 2 * MOST * MOST; i++)
        air_leave(&w.air[0][0][0] + i, op);
}

static void drop(void *ctx, struct p2p_op *op)
{
    (void)ctx;
    if (op->flies)
        leave_air(op);
    free(letter_of(op)->part);
    letter_of(op)->part = NULL;
}

static bool can_fly(void *ctx, const struct p2p_op *op, size_t bytes)
{
    (void)ctx;
    assert_true(op->staged);
    return bytes >= FLIES && pick(4) > 0;
}

static void fly(void *ctx, struct p2p_op *op)
{
    struct letter *l = letter_of(op);
    (void)ctx;
    assert_true(!l->part && op->moved == 0);
    air_enter(air_of(op, l), op);
}

/* A message goes over when both ends are there. */
static void go_over(int from, int to)
{
    struct air_end *s = air_first(&w.air[0][from][to]), *r = air_first(&w.air[1][from][to]);
    if (!s || !r || pick(2))
        return;
    assert_int_equal(s->op->tag, r->op->tag);
    assert_int_equal(s->op->bytes, r->op->expected);
    memcpy(memory_of(r->op), memory_of(s->op), s->op->bytes);
    s->over = r->over = true;
    flights++;
}

static void land(int member, struct air *a)
{
    struct p2p_op *op = pick(2) ? air_land(a) : NULL;
    if (op)
        p2p_flown(w.members[member].p, op);
}

static void fly_on(int member)
{
    for (int r = 0; r < w.n; r++) {
        go_over(member, w.of[r]);
        go_over(w.of[r], member);
        land(member, &w.air[0][member][w.of[r]]);
        land(member, &w.air[1][w.of[r]][member]);
    }
}

static void sent(void *ctx, struct p2p_op *op)
{
    assert_true(letter_of(op)->part && letter_of(op)->part_at == op->moved);
    drop(ctx, op);
}

static bool opens(void *ctx, struct p2p_op *op)
{
    (void)ctx;
    letter_of(op)->opened = letter_of(op)->opened || pick(3) > 0;
    return letter_of(op)->opened;
}

static uint8_t *room(void *ctx, struct p2p_op *op)
{
    (void)ctx;
    assert_true(!op->sends && op->staged && letter_of(op)->opened && !letter_of(op)->part);
    if (pick(3) == 0)
        return NULL;
    return letter_of(op)->part = malloc(P2P_PART);
}

static void received(void *ctx, struct p2p_op *op, size_t bytes)
{
    struct letter *l = letter_of(op);
    assert_true(l->part && bytes <= P2P_PART && bytes <= op->bytes - op->moved);
    memcpy(memory_of(op) + op->moved, l->part, bytes);
    drop(ctx, op);
}

static const struct p2p_stage stage = {.fetch = fetch,
                                       .sent = sent,
                                       .opens = opens,
                                       .room = room,
                                       .received = received,
                                       .drop = drop,
                                       .can_fly = can_fly,
                                       .fly = fly};

/* ---- letters -------------------------------------------------------------------------------- */

static size_t size_of(int from, int to, uint32_t tag, int k)
{
    static const size_t sizes[] = {0, 1, 100, 5000, 16384, 16385, 30000, BIGGEST};
    uint64_t state =
        (uint64_t)from * 7919 + (uint64_t)to * 104729 + tag * 31 + (uint64_t)k * 1299709;
    for (int i = 0; i < 3; i++)
        rank_random(&state);
    if (w.small && rank_random(&state) % 8)
        return 16384;
    if (tag == 0 && rank_random(&state) % 20 == 0)
        return HUGE_ONE;
    return sizes[rank_random(&state) % 8];
}

static uint8_t byte_of(int from, int to, uint32_t tag, int k, size_t i)
{
    if (i < 2)
        return (uint8_t)(k >> (8 * i));
    return (uint8_t)((size_t)(from * 5 + to * 3 + k) + tag + i * 7);
}

static void on_done(void *ctx, struct p2p_op *op, const struct err *err)
{
    struct letter *l = letter_of(op);
    assert_false(l->ended);
    l->ended = true;
    l->code = err ? err->code : 0;
    assert_true(!op->kept || (op->staged && !err && !op->source));
    if (op->staged)
        drop(ctx, op);
    if (op->sends) { /* its program uses the memory for something else */
        memset(l->data, 0xee, op->bytes);
        return;
    }
    if (l->code)
        return;
    if (op->kept)
        memcpy(l->data, op->kept, op->got);
    free(op->kept);
    if (op->source) {
        memcpy(l->data, memory_of(op->source), op->got);
        on_done(ctx, op->source, NULL);
    }
    l->from = w.of[op->from];
    if (l->k < 0) /* from any rank: the sizes of 0 and 1 byte do not say which one it is */
        l->k = op->got > 1 ? l->data[0] | l->data[1] << 8 : -1;
    if (l->k < 0)
        return;
    assert_int_equal(op->got, size_of(l->from, l->to, l->tag, l->k));
    for (size_t i = 0; i < op->got; i++)
        assert_int_equal(l->data[i], byte_of(l->from, l->to, l->tag, l->k, i));
}

static struct letter *new_letter(int from, int to, uint32_t tag, int k, size_t bytes)
{
    struct letter *l = &w.letters[w.nletters++];
    assert_true(w.nletters < LETTERS);
    *l = (struct letter){.from = from, .to = to, .tag = tag, .k = k, .data = malloc(bytes + 1)};
    l->op = (struct p2p_op){.tag = tag, .data = l->data, .bytes = bytes, .staged = pick(3) == 0};
    if (l->op.staged) /* an address that no access of the host's survives */
        l->op.data = (uint8_t *)16;
    return l;
}

static void submit(int member, struct letter *l)
{
    struct err err = {.code = 0};
    assert_int_equal(p2p_submit(w.members[member].p, &l->op, &err), 0);
}

static void send_one(int from, int to, uint32_t tag)
{
    int k = w.sent[from][to][tag]++;
    struct letter *l = new_letter(from, to, tag, k, size_of(from, to, tag, k));
    for (size_t i = 0; i < l->op.bytes; i++)
        l->data[i] = byte_of(from, to, tag, k, i);
    l->op.sends = true;
    l->op.peer = w.members[to].mesh.rank;
    submit(from, l);
}

static void receive_one(int from, int to, uint32_t tag)
{
    int k = tag == ANY_TAG ? -1 : w.asked[from][to][tag]++;
    size_t room = k < 0 ? BIGGEST : size_of(from, to, tag, k);
    bool small = room > 0 && k >= 0 && pick(30) == 0;
    struct letter *l = new_letter(k < 0 ? -1 : from, to, tag, k, room - small);
    l->op.peer = k < 0 ? P2P_ANY : w.members[from].mesh.rank;
    submit(to, l);
}

/* ---- epochs --------------------------------------------------------------------------------- */

static void number_ranks(void)
{
    for (int r = 0; r < w.n; r++) {
        struct member *m = &w.members[w.of[r]];
        w.host_of[r] = w.of[r] % 2;
        m->mesh = (struct mesh){.rank = r,
                                .size = w.n,
                                .host = w.of[r] % 2,
                                .host_of = w.host_of,
                                .shm = (struct shm *)w.host_of};
    }
    for (int a = 0; a < w.n; a++)
        for (int b = 0; b < w.n; b++)
            p2p_links.of[a][b].n = 0;
}

static void add_member(void)
{
    struct member *m = &w.members[w.nmembers];
    m->lives = true;
    w.of[w.n++] = w.nmembers++;
}

static void begin_member(struct member *m)
{
    struct err err = {.code = 0};
    assert_int_equal(p2p_create(&m->mesh, true, &stage, on_done, m, &m->p, &err), 0);
}

static void progress(int member)
{
    struct member *m = &w.members[member];
    int peer = -1, rc = 0;
    if (m->lives)
        p2p_progress(m->p, &peer, &rc);
    assert_int_equal(rc, 0);
    if (m->lives)
        fly_on(member);
}

static void lose(int rank)
{
    struct member *m = &w.members[w.of[rank]];
    m->lives = false;
    m->lost = true;
    for (int i = 0; i < MOST; i++)
        w.air[0][w.of[rank]][i].n = w.air[1][i][w.of[rank]].n = 0;
    p2p_destroy(m->p);
    m->p = NULL;
}

/* Messages of which a part has come when the epoch ends, before or after their receive. */
static void send_parts(void)
{
    for (int i = pick(4); i > 0; i--) {
        int a = w.of[pick(w.n)], b = w.of[pick(w.n)];
        uint32_t tag = (uint32_t)pick(TAGS);
        bool early = pick(2);
        if (early)
            receive_one(a, b, tag);
        send_one(a, b, tag);
        progress(a);
        progress(b);
        if (!early)
            receive_one(a, b, tag);
    }
}

/* Ranks leave the epoch one after the other; the others go on in it meanwhile. */
static void suspend_all(void)
{
    int order[MOST];
    rank_shuffle(order, w.n, &w.random);
    for (int i = 0; i < w.n; i++) {
        struct member *m = &w.members[w.of[order[i]]];
        if (m->lives)
            p2p_suspend(m->p);
        for (int k = pick(20); k > 0; k--)
            progress(w.of[pick(w.n)]);
    }
}

static void next_epoch(int lost)
{
    struct err err = {.code = -EOWNERDEAD};
    int before[MOST], now[MOST], order[MOST], nbefore = w.n, n = 0;
    send_parts();
    if (lost >= 0)
        lose(lost);
    suspend_all();
    memcpy(before, w.of, sizeof(before));
    /* Operations that are submitted between two epochs. */
    for (int r = 0; r < w.n; r++)
        if (w.members[before[r]].lives)
            send_one(before[r], before[r], 0);
    for (int r = 0; r < w.n; r++)
        if (w.members[before[r]].lives && lost >= 0)
            p2p_fail(w.members[before[r]].p, lost, &err);
    rank_shuffle(order, nbefore, &w.random);
    for (int r = 0; r < nbefore; r++)
        now[r] = -1;
    for (int i = 0; i < nbefore; i++)
        if (w.members[before[order[i]]].lives) {
            now[order[i]] = n;
            w.of[n++] = before[order[i]];
        }
    w.n = n;
    int old = w.nmembers;
    if (w.nmembers < MOST && w.n < RANKS && pick(2) == 0)
        add_member();
    number_ranks();
    for (int r = 0; r < w.n; r++) {
        struct member *m = &w.members[w.of[r]];
        if (w.of[r] >= old)
            begin_member(m);
        else
            assert_int_equal(p2p_resume(m->p, &m->mesh, now, &err), 0);
    }
}

/* ---- a job ---------------------------------------------------------------------------------- */

static void act(void)
{
    int a = w.of[pick(w.n)], b = w.of[pick(w.n)];
    uint32_t tag = (uint32_t)pick(TAGS);
    switch (pick(9)) {
    case 0:
        send_one(a, b, tag);
        break;
    case 1:
        receive_one(a, b, tag);
        break;
    default:
        progress(a);
    }
}

static bool is_between_living(const struct letter *l)
{
    return w.members[l->to].lives && (l->from < 0 || w.members[l->from].lives);
}

/* Sends what receives wait for, and receives what has been sent. */
static void balance(void)
{
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < w.n; k++)
            for (uint32_t tag = 0; tag < TAGS; tag++) {
                int a = w.of[i], b = w.of[k];
                while (tag != ANY_TAG && w.sent[a][b][tag] < w.asked[a][b][tag])
                    send_one(a, b, tag);
                while (tag != ANY_TAG && w.asked[a][b][tag] < w.sent[a][b][tag])
                    receive_one(a, b, tag);
            }
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < w.n; k++)
            for (int n = w.sent[w.of[i]][w.of[k]][ANY_TAG]; n > 0; n--)
                receive_one(-1, w.of[k], ANY_TAG);
}

/* How many messages have been sent to receives from any rank, and have not come. */
static int any_missing(void)
{
    int n = 0;
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < w.n; k++)
            n += w.sent[w.of[i]][w.of[k]][ANY_TAG];
    for (int i = 0; i < w.nletters; i++) {
        const struct letter *l = &w.letters[i];
        n -= l->tag == ANY_TAG && !l->op.sends && l->ended && !l->code && is_between_living(l);
    }
    return n;
}

static bool all_ended(void)
{
    for (int i = 0; i < w.nletters; i++) {
        const struct letter *l = &w.letters[i];
        if (!l->ended && is_between_living(l) && (l->op.sends || l->tag != ANY_TAG))
            return false;
    }
    return any_missing() == 0;
}

static void drain(int cuts)
{
    for (int i = 0; i < 1000000; i++) {
        progress(w.of[pick(w.n)]);
        if (cuts > 0 && i % 200 == 199) {
            next_epoch(-1);
            balance();
            cuts--;
        }
        if (i % 100 == 99 && cuts == 0 && all_ended())
            break;
    }
    assert_true(all_ended());
}

static void check_letters(void)
{
    int any[MOST][MOST] = {{0}};
    for (int i = 0; i < w.nletters; i++) {
        const struct letter *l = &w.letters[i];
        if (!is_between_living(l))
            continue;
        bool small = !l->op.sends && l->k >= 0 && l->from >= 0 && l->tag != ANY_TAG &&
                     l->op.bytes < size_of(l->from, l->to, l->tag, l->k);
        if (l->op.sends || l->tag != ANY_TAG) {
            assert_int_equal(l->code, small ? -EMSGSIZE : 0);
            continue;
        }
        if (!l->ended || l->code)
            continue;
        /* In the order of the receives: the messages of each sender in order, none twice, none left
         * out. */
        int k = any[l->from][l->to]++;
        assert_int_equal(l->op.got, size_of(l->from, l->to, l->tag, k));
        if (l->k >= 0)
            assert_int_equal(l->k, k & 0xffff);
    }
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < w.n; k++)
            assert_int_equal(any[w.of[i]][w.of[k]], w.sent[w.of[i]][w.of[k]][ANY_TAG]);
}

static void run_job(uint64_t seed, int steps, int epochs)
{
    struct err err = {.code = -ECONNRESET};
    memset(&w, 0, sizeof(w));
    w.random = seed;
    p2p_links.random = &w.random;
    w.small = seed % 4 == 0;
    p2p_links.capacity = seed % 3 == 0 ? P2P_LINKS_WIDE : CAPACITY;
    w.letters = calloc(LETTERS, sizeof(*w.letters));
    for (int i = 0; i < FIRST; i++)
        add_member();
    number_ranks();
    for (int r = 0; r < w.n; r++)
        begin_member(&w.members[w.of[r]]);
    for (int e = 0; e < epochs; e++) {
        for (int i = 0; i < steps; i++)
            act();
        next_epoch(w.n > 2 && pick(2) == 0 ? pick(w.n) : -1);
    }
    balance();
    drain(4);
    check_letters();
    for (int i = 0; i < w.nmembers; i++) {
        if (w.members[i].lives)
            p2p_fail(w.members[i].p, -1, &err);
        p2p_destroy(w.members[i].p);
    }
    for (int i = 0; i < w.nletters; i++) {
        free(w.letters[i].part);
        free(w.letters[i].data);
    }
    free(w.letters);
}

static void test_random_jobs(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= (uint64_t)effort(300); seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        run_job(seed, 20 + (int)(seed % 7) * 60, 1 + (int)(seed % 29));
    }
    assert_true(flights > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
