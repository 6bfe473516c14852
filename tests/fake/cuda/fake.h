/* SPDX-License-Identifier: Apache-2.0
 *
 * fake: what the files of the fake libcuda.so.1 (tests/fake/cuda.c) share.
 *
 * It has the driver's semantics on host memory: one primary context for each device, which is
 * retained and released, a stack of current contexts for each thread, streams that are queues with
 * a thread each, events, copies that run later, kernels by name, sticky errors. It is strict: a
 * call without initialization or context, or outside of its memory, is an error here too.
 */
#ifndef HVD_TESTS_FAKE_CUDA_FAKE_H
#define HVD_TESTS_FAKE_CUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/backend/cuda_abi.h"
#include "tests/fake/cuda/control.h"
#include "tests/fake/script.h"

#define SCRIPT    "FAKE_CUDA"
#define FAKE_GPUS 16

#define FAKE_DECLARE(field, function, parameters) unsigned function parameters;
CUDA_REQUIRED(FAKE_DECLARE)
CUDA_OPTIONAL(FAKE_DECLARE)
unsigned cuDeviceCanAccessPeer(int *ret, int a, int b);

struct CUctx_st {
    int device;
    int retained;
    unsigned sticky; /* the error that every call returns from now on */
    unsigned breaks; /* the sticky error that the next task causes */
    struct CUstream_st *null;
    long queued, done;   /* tasks of all streams of this context */
    uint64_t busy_until; /* the latest end of a done task */
};

enum fake_kind {
    FAKE_KERNEL,
    FAKE_H2D,
    FAKE_D2H,
    FAKE_D2D,
    FAKE_NCCL,
    FAKE_HOST,
    FAKE_RECORD, /* of an event */
    FAKE_AWAIT,  /* for an event */
};

struct fake_task {
    struct fake_task *next;
    /* Returns a CUresult. A value other than 0 sticks to the context. */
    unsigned (*run)(struct fake_task *task);
    void (*drop)(struct fake_task *task); /* called before the task is freed; may be NULL */
    struct CUstream_st *stream;
    struct CUevent_st *event;
    uint64_t mark; /* the event's count when it was recorded or waited for */
    void *to;
    const void *from;
    size_t bytes;
    void (*f)(void *);
    void (*skip)(void *); /* runs instead of run, after a sticky error; may be NULL */
    void *data;
    unsigned fails; /* the error that the script asks for; 0: none */
    bool stalls;
    uint64_t *ret_end; /* gets when the task has ended; not 0 */
    /* ---- in time ---- */
    enum fake_kind kind;
    uint64_t issued, takes;
    struct fake_cuda_timed timed; /* of FAKE_NCCL */
};

struct CUstream_st {
    struct CUctx_st *context;
    pthread_cond_t wake; /* its thread waits here while it has no task */
    struct fake_task *first, **end;
    bool running; /* a task that was taken off the queue runs */
    bool closing;
    unsigned capturing;
    /* ---- in time ---- */
    struct CUstream_st *next; /* in the list of all streams */
    uint64_t busy_until;      /* end of the last task that was taken off the queue */
    const void *word;         /* the first task waits until this futex changes from value */
    uint32_t value;
};

#define FAKE_MARKS 32

struct CUevent_st {
    struct CUevent_st *next;
    /* Counts: records that were requested, and records that streams have reached. */
    uint64_t recorded, done;
    uint64_t at[FAKE_MARKS]; /* ns: time of record n in n % FAKE_MARKS */
    int users;               /* references: the handle's owner, and tasks */
};

/* The only lock of the fake. fake_moved is signalled whenever a waiter may continue, except a
 * stream's thread that has no task. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_moved;

extern struct CUctx_st fake_contexts[FAKE_GPUS];
extern unsigned fake_delay_us; /* delay of every task */
extern bool fake_stalled;      /* no stream runs tasks */
extern long fake_live;         /* objects that were not destroyed */
extern size_t fake_locked;     /* bytes of pinned host memory that were not freed */

enum fake_needs { FAKE_NOTHING, FAKE_INIT, FAKE_CONTEXT, FAKE_UNSAFE };

/* Called first in every function, with its __func__ and without the lock. Returns an error to
 * return at once, or 0. UNSAFE: the function needs a context, and must not be called while a stream
 * is captured, unless this thread has relaxed that. */
unsigned fake_enter(const char *function, enum fake_needs needs);

struct CUctx_st *fake_current(void);

/* Appends a task to a stream (NULL: the default stream). function: the CUDA function that asks for
 * the task, by which the script's keys "later" and "stall" find it. Called with the lock. Returns
 * NULL if there is no memory or no current context. The task is freed when it is done. */
struct fake_task *fake_append(const char *function, enum fake_kind kind, struct CUstream_st *stream,
                              unsigned (*run)(struct fake_task *task));

/* Takes a stream's first task off the queue and runs it; data: whether bytes are moved. Returns the
 * task, for fake_finish(). Called with the lock, which it may release meanwhile. */
struct fake_task *fake_run_first(struct CUstream_st *stream, bool data, unsigned *ret_code);
/* Ends a task that was taken off, at a time, and frees it. Called with the lock. */
void fake_finish(struct fake_task *task, unsigned code, uint64_t end);

/* ---- timeline ---- */

struct fake_time { /* FAKE_CUDA_TIME */
    bool on;
    bool data;            /* bytes are moved */
    double h2d, d2h, d2d; /* bytes/s; 0: copies take no time */
    double copy, kernel;  /* seconds that each copy or kernel takes in addition */
    double call, launch;  /* seconds */
};

const struct fake_time *fake_time(void);
uint64_t fake_now(void);
/* The host's part of putting a task on a stream: takes the time of a call. */
void fake_issue(struct fake_task *task);
/* Wakes the stream's thread, if only that thread may run the task. */
void fake_wake(const struct fake_task *task);
/* The duration in ns of a copy or kernel that moves so many bytes. */
uint64_t fake_takes(enum fake_kind kind, size_t bytes);
/* Continues the schedules of all streams as far as is known. Called with the lock. Does nothing if
 * time is off. */
void fake_advance(void);
/* What a stream's thread does until the stream is closed. Called with the lock. */
void fake_serve(struct CUstream_st *stream);
void fake_add_stream(struct CUstream_st *stream);
void fake_remove_stream(struct CUstream_st *stream);
/* Sleeps until a time that fake_finish() got. Called with the lock, which it releases meanwhile. */
void fake_sleep(uint64_t until);
size_t fake_log(struct fake_cuda_op *ret, size_t most);
unsigned fake_work(struct CUstream_st *stream, uint64_t ns);

/* Whether all these bytes lie in one piece of memory from cuMemAlloc or cuMemHostAlloc. Always true
 * with unified=1 in the script. Called with the lock. */
bool fake_mapped(const void *at, size_t bytes);

/* Runs a kernel. False: it would access memory outside of CUDA's. */
typedef bool fake_kernel_f(const char *name, const void *parameters);
/* Returns the kernel of that name and the size of its parameters. NULL: there is none. */
fake_kernel_f *fake_kernel(const char *name, size_t *ret_size);
/* Bytes that a kernel with these parameters reads and writes, halved: those of a copy that takes as
 * long. */
size_t fake_kernel_bytes(const char *name, const void *parameters);

#endif
