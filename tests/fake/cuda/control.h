/* SPDX-License-Identifier: Apache-2.0
 *
 * control: how a test controls the fake libcuda.so.1 in its own process, beyond the script in
 * FAKE_CUDA (script.h; keys: version count sm bus uuid peer, FUNCTION=code, hang=FUNCTION,
 * crash=FUNCTION, delay_us=n, unified=1 and
 * memory=BYTES of each device (memory.c), later=FUNCTION:code for an error that shows on
 * the stream, stall=FUNCTION for work that never ends). A test finds fake_cuda_control with dlsym.
 */
#ifndef HVD_TESTS_FAKE_CUDA_CONTROL_H
#define HVD_TESTS_FAKE_CUDA_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct CUstream_st;

/* An operation in the schedule of a stream (FAKE_CUDA_TIME). Times are nanoseconds of
 * CLOCK_MONOTONIC. */
struct fake_cuda_op {
    const struct CUstream_st *stream;
    const char *kind; /* "kernel", "h2d", "d2h", "d2d", "nccl", "host" */
    size_t bytes;
    uint64_t issued;     /* the host's call has put it on the stream */
    uint64_t start, end; /* on the device; of a collective: the latest start over all ranks */
};

struct fake_cuda_control {
    /* Calls of a function so far; NULL: of all functions. */
    long (*calls)(const char *function);
    /* The n-th call from now (0: the next) returns code and does nothing; n < 0: none does.
     * Functions that release something do not fail, and a repeated query counts once. */
    void (*fail_call)(long n, unsigned code);
    bool (*failed)(void); /* the chosen call has failed */
    /* The next work on this device sets code as its sticky error. */
    void (*break_device)(int device, unsigned code);
    /* Clears the device's sticky error, as a new process would. */
    void (*mend)(int device);
    void (*stall)(bool on);
    void (*delay)(unsigned us);
    /* Sets the CUstreamCaptureStatus of a stream; 1: it is being captured. */
    void (*capture)(struct CUstream_st *stream, unsigned status);
    /* Streams, events, modules, memory and retained contexts that were not released. */
    long (*live)(void);
    /* Bytes of pinned host memory that were not freed. */
    size_t (*locked)(void);

    /* ---- with FAKE_CUDA_TIME (tests/fake/README.md) ---- */

    /* Copies operations of the schedule, the first ones of the process first, each stream's in its
     * order. Returns how many there are; ret may be NULL. */
    size_t (*log)(struct fake_cuda_op *ret, size_t most);
    /* Puts a kernel on the stream that takes so long and does nothing. Returns a CUresult. */
    unsigned (*work)(struct CUstream_st *stream, uint64_t ns);
};

extern const struct fake_cuda_control fake_cuda_control;

/* For other fake libraries (tests/fake/nccl): f is called when the stream reaches it, or skip if
 * the device has a sticky error. Returns 0 or -1. */
int fake_cuda_enqueue(void *stream, void (*f)(void *), void (*skip)(void *), void *ctx);

/* An operation of another fake library that takes time. */
struct fake_cuda_timed {
    size_t bytes;    /* for the log */
    uint64_t issued; /* 0: now */
    bool real;       /* run() is called even with data=off, and may take longer than end - start */
    /* Asks when the operation runs, if the stream is free for it from `ready` on. False: that is
     * not known yet; a change of *ret_word, a futex shared by processes, away from ret_value may
     * change that (NULL: ask again later). Called with the fake's lock, any number of times, on any
     * thread. Must not block. */
    bool (*when)(void *ctx, uint64_t ready, uint64_t *ret_start, uint64_t *ret_end,
                 const void **ret_word, uint32_t *ret_value);
    /* Moves the bytes, on the stream's thread. */
    void (*run)(void *ctx);
    void (*done)(void *ctx); /* called last, also when a sticky error skips the operation */
};

/* Like fake_cuda_enqueue(). Returns 0 or -1; 1: FAKE_CUDA_TIME is not set, nothing was done. */
int fake_cuda_enqueue_timed(void *stream, const struct fake_cuda_timed *timed, void *ctx);

#endif
