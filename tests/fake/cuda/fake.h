/* SPDX-License-Identifier: Apache-2.0
 *
 * fake: the parts of the fake libcuda.so.1 (tests/fake/cuda.c) among themselves.
 *
 * It has the driver's semantics on the host's memory: a primary context a device that is retained
 * and released, a stack of current ones a thread, streams that are queues with a thread each,
 * events, copies that are done later, kernels by name, errors that stick. It is strict: what is not
 * initialized, has no context or is outside of its memory is an error here too.
 */
#ifndef HVD_TESTS_FAKE_CUDA_FAKE_H
#define HVD_TESTS_FAKE_CUDA_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/backend/cuda_abi.h"
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
    unsigned sticky; /* what every call answers from now on */
    unsigned breaks; /* what the next task makes of it */
    struct CUstream_st *null;
    long queued, done; /* tasks, of all its streams */
};

struct fake_task {
    struct fake_task *next;
    /* A CUresult: what is not 0 sticks to the context. */
    unsigned (*run)(struct fake_task *task);
    void (*drop)(struct fake_task *task); /* before it is freed; may be NULL */
    struct CUstream_st *stream;
    struct CUevent_st *event;
    uint64_t mark; /* of the event: recorded, or waited for */
    void *to;
    const void *from;
    size_t bytes;
    void (*f)(void *);
    void (*skip)(void *); /* instead of run, after an error that sticks; may be NULL */
    void *data;
    unsigned fails; /* on demand */
    bool stalls;
    bool *ret_done;
};

struct CUstream_st {
    struct CUctx_st *context;
    struct fake_task *first, **end;
    bool running; /* a task, taken off the queue */
    bool closing;
    unsigned capturing;
};

/* One lock for everything; moved is signalled whenever something may go on. */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_moved;

extern struct CUctx_st fake_contexts[FAKE_GPUS];
extern unsigned fake_delay_us; /* of every task */
extern bool fake_stalled;      /* no stream does anything */
extern long fake_live;         /* things that somebody has to destroy yet */
extern size_t fake_locked;     /* bytes of the host's memory among them */

enum fake_needs { FAKE_NOTHING, FAKE_INIT, FAKE_CONTEXT, FAKE_UNSAFE };

/* At the head of every function, without the lock: what it has to answer at once, 0: go on.
 * UNSAFE: needs a context, and must not be called while a stream is captured, unless this thread
 * has relaxed that. */
unsigned fake_enter(const char *function, enum fake_needs needs);

struct CUctx_st *fake_current(void);

/* A task of this function at the end of a stream (NULL: the default stream), with the lock. NULL
 * when memory is out. It is freed when it is done. */
struct fake_task *fake_append(const char *function, struct CUstream_st *stream,
                              unsigned (*run)(struct fake_task *task));

/* Is all of it inside of one piece of memory that cuMemAlloc or cuMemHostAlloc gave? With the
 * lock. */
bool fake_mapped(const void *at, size_t bytes);

/* The kernel of that name as a function of its parameters, and their size. NULL: there is none. */
typedef bool fake_kernel_f(const char *name, const void *parameters);
fake_kernel_f *fake_kernel(const char *name, size_t *ret_size);

#endif
