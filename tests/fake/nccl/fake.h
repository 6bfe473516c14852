/* SPDX-License-Identifier: Apache-2.0
 *
 * fake: what the files of this fake libnccl.so.2 share. It has NCCL's interface and behaviour
 * (groups, streams, nonblocking communicators, asynchronous errors, abort) on host memory,
 * between processes of one machine. tests/fake/README.md lists the failures that a test can
 * request.
 *
 * The files: segment: memory that the ranks of a communicator share, and waiting in it. comm: the
 * life of a communicator. group: calls become tasks. run: executes a task on its stream's thread.
 * stream: queues with a thread each. time: operations that take time. math: arithmetic. home: the
 * work that a thread has begun. script: failures on demand.
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
/* The version of NCCL that this fake imitates. */
#define FAKE_NCCL_BUILT 22707
#endif

#define EXPORT       __attribute__((visibility("default")))
#define RANKS_MAX    32
#define CELL_BYTES   (64u << 10)
#define LETTER_BYTES (16u << 10)
#define MADE_OPS_MAX 64
/* A rank comes to meeting m + 1 when all ranks have come to m. So two of them do not overwrite what
 * is still read. */
#define MEETINGS 2

/* ---- segment ---- */

struct seat {
    _Atomic int pid;
    _Atomic int version, gpu;
    _Atomic uint64_t step; /* barriers that this rank has reached */
    _Atomic uint64_t what; /* signature of its current collective */
};

struct letter { /* one direction between two ranks; a chunk at a time */
    _Atomic uint64_t sent, taken;
    uint64_t bytes; /* size of the whole message */
    uint8_t data[LETTER_BYTES];
};

struct meeting {                       /* of all ranks, before a collective, in time */
    _Atomic uint32_t came;             /* a futex; counts on from one use to the next */
    _Atomic uint64_t ready[RANKS_MAX]; /* ns: when each rank's stream can start it */
};

struct where { /* location of a segment; part of the unique id */
    uint64_t magic, nonce;
    int pid, fd;
};

struct segment {
    uint64_t nonce;
    _Atomic int joined;
    struct seat seat[RANKS_MAX];
    struct meeting meeting[MEETINGS];
    uint8_t cell[RANKS_MAX][CELL_BYTES];
    struct letter letter[RANKS_MAX][RANKS_MAX]; /* [from][to] */
};

/* Creates a segment and its location, by which other ranks open it. Its descriptor stays open. */
int segment_make(struct where *ret);
/* Returns NULL if the creator has ended, or has another segment there. */
struct segment *segment_open(const struct where *where);
void segment_close(struct segment *segment);
void segment_unmake(const struct where *where);

/* ---- comm ---- */

struct ncclComm {
    int rank, size;
    bool blocking;
    bool tells; /* reports lost ranks */
    struct segment *segment;
    struct where where;
    int peer[RANKS_MAX]; /* pidfds */
    uint64_t step;
    /* Number of the next list of tasks to queue, and of the next one to run: lists run in this
     * order, whatever their streams. */
    _Atomic uint64_t queued, run;
    _Atomic int async;    /* ncclResult_t */
    _Atomic bool aborted; /* the struct stays, so that late callers find it aborted */
    struct {              /* operations that ncclRedOpCreatePreMulSum has made */
        double scalar;
        bool used;
    } made[MADE_OPS_MAX];
    struct task *launch; /* tasks that are not on their stream yet: the caller has to poll first */
    int polls;
    uint64_t launch_at;          /* ns: when the launch gets onto its stream, in time */
    uint64_t met;                /* collectives that have started, in time */
    _Atomic bool busy;           /* a thread creates this communicator */
    _Atomic(struct home *) home; /* of the thread that has begun work; NULL: none */
    uint64_t memory;             /* address on the device; 0: none */
    struct ncclComm *next;       /* in the list of all communicators */
};

/* Waits a little. True: give up, because the communicator is aborted. If a peer has died
 * and FAKE_NCCL_REMOTE is set, sets the asynchronous error and waits for that. */
bool comm_pause(struct ncclComm *comm, unsigned *tries);
/* Waits until all ranks have called this. False: the caller must give up, see comm_pause(). */
bool comm_barrier(struct ncclComm *comm);
/* Waits until the communicator is aborted. */
void comm_hang(struct ncclComm *comm);

/* ---- group, run, stream ---- */

enum task_kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct task { /* a call; the calls of a group on one communicator and stream are a list */
    struct task *next;
    struct ncclComm *comm;
    void *stream;
    enum task_kind kind;
    const uint8_t *in;
    uint8_t *out;
    size_t count;
    int type, op, peer; /* peer: of SEND and RECV; the root of BROADCAST and REDUCE */
    double scalar;      /* of an operation made by PreMulSum */
    bool hangs;
    int fails;       /* fails asynchronously, with this result */
    size_t at;       /* SEND, RECV: bytes done */
    uint64_t number; /* of the list, in its first task: see comm->run */
    bool came;       /* to the meeting before it; of the first task */
};

int group_add(const struct task *task);
/* Puts the list, all of this communicator, on its stream, and takes ownership of it. */
int group_launch(struct ncclComm *comm, struct task *list);
void task_free(struct task *list);

/* On a stream's thread: run_tasks() runs the whole list; skip_tasks() frees it unrun, because its
 * device has a sticky error. */
void run_tasks(void *list);
void skip_tasks(void *list);
/* Parts of both: executes the list; frees it, so that the communicator's next list may run. */
void run_in_turn(struct task *list);
void leave_list(struct task *list);

/* The function of that name of the fake libcuda in this process; NULL: there is none. */
void *stream_symbol(const char *name);
int stream_enqueue(void *stream, void (*fn)(void *arg), void (*skip)(void *arg), void *arg);

/* ---- time: FAKE_NCCL_TIME, see README.md ---- */

/* The host's part of a launch: takes the time of the call, and sets when the launch is done.
 * Returns whether it is done in the call, also by a nonblocking communicator. */
bool time_call(struct ncclComm *comm);
/* The launch gets onto its stream after so many ms at the earliest. Not with FAKE_NCCL_TIME. */
void time_delay(struct ncclComm *comm, int ms);
/* Whether the launch has to get onto its stream now, by time or by the number of polls. */
bool time_is_due(struct ncclComm *comm);
/* Puts the list on its stream to take time. False: the libcuda in this process has no time. */
bool time_enqueue(struct task *list, int *ret_result);

/* ---- home: threads and what they have begun, before 2.27 ---- */

/* Ends the process after a call that no user of NCCL may make. */
_Noreturn void fake_wrong(const char *what);
/* The calling thread begins something for the communicator. */
void home_begin(struct ncclComm *comm);
/* Ends the process if the thread that has begun work for the communicator has ended. */
void home_check(struct ncclComm *comm);
/* Called by the communicator's next call, which ends what was begun for it. */
void home_settle(struct ncclComm *comm);
void home_abort(struct ncclComm *comm);

/* ---- math ---- */

size_t type_size(int type);
/* out[i] = in[0][i] op in[1][i] ...; AVG divides by their number, an operation of PreMulSum
 * multiplies by scalar first. */
void math_reduce(uint8_t *out, const uint8_t *const *in, int ranks, size_t count, int type, int op,
                 double scalar);
double math_load(const void *at, int type);

/* ---- script ---- */

struct fault {
    int sync;   /* result to return at once; 0: none */
    int async;  /* result that comes up later; 0: none */
    bool hangs; /* what the call has begun does not end */
};

/* Called first in each function, with its __func__. comm: the communicator whose abort ends a call
 * that hangs; NULL: nothing ends it. */
struct fault script_fault(const char *function, struct ncclComm *comm);
int script_number(const char *variable, int def);

#endif
