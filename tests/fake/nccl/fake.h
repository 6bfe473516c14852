/* SPDX-License-Identifier: Apache-2.0
 *
 * fake: what the files of this libnccl.so.2 of ours share. It has NCCL's interface and its ways
 * (groups, streams, communicators that do not block, asynchronous errors, abort, shrink) on host
 * memory, between processes of one machine. tests/fake/README.md says what can be made to fail.
 *
 * segment: memory that the ranks of a communicator share, and waiting in it. comm: the life of a
 * communicator. group: calls become tasks. run: what a task does, on its stream's thread. stream:
 * queues with a thread each. math: arithmetic. home: what a thread has begun. script: failures on
 * demand.
 */
#ifndef HVD_TESTS_FAKE_NCCL_H
#define HVD_TESTS_FAKE_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/backend/nccl_abi.h"

#ifndef FAKE_NCCL_BUILT
#define FAKE_NCCL_BUILT 22707 /* which version it plays, and so which functions it has */
#endif

#define EXPORT       __attribute__((visibility("default")))
#define RANKS_MAX    32
#define CELL_BYTES   (64u << 10)
#define LETTER_BYTES (16u << 10)
#define MADE_OPS_MAX 64
#define CHILD_SLOTS  8

/* ---- segment ---- */

struct seat {
    _Atomic int pid;
    _Atomic int version, gpu;
    _Atomic uint64_t step; /* barriers that this rank has come to */
    _Atomic uint64_t what; /* signature of its collective */
};

struct letter { /* one way between two ranks; a chunk at a time */
    _Atomic uint64_t sent, taken;
    uint64_t bytes; /* of the whole message */
    uint8_t data[LETTER_BYTES];
};

struct where { /* a segment somebody has made: travels in the id */
    uint64_t magic, nonce;
    int pid, fd;
};

struct segment {
    uint64_t nonce;
    _Atomic int joined;
    struct {
        _Atomic uint64_t ready; /* the so many-th shrink */
        struct where where;
    } child[CHILD_SLOTS];
    struct seat seat[RANKS_MAX];
    uint8_t cell[RANKS_MAX][CELL_BYTES];
    struct letter letter[RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

/* A new one, and the words by which others find it; its descriptor stays open. */
int segment_make(struct where *ret);
/* NULL: whoever made it is gone, or it is another one. */
struct segment *segment_open(const struct where *where);
void segment_close(struct segment *segment);
void segment_unmake(const struct where *where);

/* ---- comm ---- */

struct ncclComm {
    int rank, size;
    bool blocking;
    bool tells; /* of dead ranks */
    struct segment *segment;
    struct where where;
    int peer[RANKS_MAX]; /* pidfds */
    uint64_t step;
    _Atomic uint64_t queued, run; /* tasks, so that they run in order whatever their streams */
    _Atomic int async;            /* ncclResult_t */
    _Atomic bool aborted;         /* dead; the struct stays, so that late callers find it so */
    _Atomic bool stopped;         /* what runs is to end: a child is being made */
    uint64_t children;
    struct { /* of PreMulSum */
        double scalar;
        bool used;
    } made[MADE_OPS_MAX];
    struct task *launch; /* not on its stream yet: somebody has to poll first */
    int polls;
    _Atomic bool busy;           /* a thread makes it, or its child */
    _Atomic bool shrinking;      /* a caller is in ncclCommShrink */
    _Atomic(struct home *) home; /* of the thread that has begun something; NULL: nobody has */
    struct ncclComm **ret_child;
    struct ncclComm *child;
    _Atomic bool given;    /* the child is its caller's now */
    struct ncclComm *next; /* of all */
};

/* Waits a little; true: give up, the communicator is aborted or a peer has died (and that shows:
 * FAKE_NCCL_REMOTE). */
bool comm_pause(struct ncclComm *comm, unsigned *tries);
/* All ranks come here. false: given up. */
bool comm_barrier(struct ncclComm *comm);
/* Waits until it is aborted. */
void comm_hang(struct ncclComm *comm);

/* ---- group, run, stream ---- */

enum task_kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct task { /* a call; a group's calls on one communicator and stream are a list */
    struct task *next;
    struct ncclComm *comm;
    void *stream;
    enum task_kind kind;
    const uint8_t *in;
    uint8_t *out;
    size_t count;
    int type, op, peer; /* peer: or the root */
    double scalar;      /* of a made op */
    bool hangs;
    int fails;       /* asynchronously, with this result */
    size_t at;       /* SEND, RECV: bytes done */
    uint64_t number; /* of the list, in its first: see comm->run */
};

int group_add(const struct task *task);
/* Puts the list, all of this communicator, on its stream; takes it over. */
int group_launch(struct ncclComm *comm, struct task *list);
void task_free(struct task *list);

/* On a stream's thread: all of the list; or nothing of it, as its device is broken. */
void run_tasks(void *list);
void skip_tasks(void *list);

int stream_enqueue(void *stream, void (*fn)(void *arg), void (*skip)(void *arg), void *arg);

/* ---- home: of threads and what they have begun, before 2.27 ---- */

/* What no caller of NCCL may do was done: ends the process. */
_Noreturn void fake_wrong(const char *what);
/* The caller's thread begins something for it. */
void home_begin(struct ncclComm *comm);
/* Somebody works through what was begun. */
void home_check(struct ncclComm *comm);
/* Its next call: what was begun ends. */
void home_settle(struct ncclComm *comm);
void home_abort(struct ncclComm *comm);

/* ---- math ---- */

size_t type_size(int type);
/* out[i] = in[0][i] op in[1][i] ...; op AVG divides by n, a made op multiplies by scalar first. */
void math_reduce(uint8_t *out, const uint8_t *const *in, int n, size_t count, int type, int op,
                 double scalar);
double math_load(const void *at, int type);

/* ---- script ---- */

struct fault {
    int sync;   /* result to return at once, 0: none */
    int async;  /* result that turns up later, 0: none */
    bool hangs; /* what was begun does not end */
};

/* At the start of each function. comm: what a call that hangs may be freed by, NULL: nothing. */
struct fault script_fault(const char *function, struct ncclComm *comm);
int script_number(const char *variable, int def);

#endif
