/* SPDX-License-Identifier: Apache-2.0
 *
 * control: how a test controls the fake libcuda.so.1 in its own process, beyond the script in
 * FAKE_CUDA (script.h; keys: version count sm bus uuid peer, FUNCTION=code, hang=FUNCTION,
 * crash=FUNCTION, delay_us=n, unified=1 (memory.c), later=FUNCTION:code for an error that shows on
 * the stream, stall=FUNCTION for work that never ends). A test finds fake_cuda_control with dlsym.
 */
#ifndef HVD_TESTS_FAKE_CUDA_CONTROL_H
#define HVD_TESTS_FAKE_CUDA_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

struct CUstream_st;

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
};

extern const struct fake_cuda_control fake_cuda_control;

/* For other fake libraries (tests/fake/nccl): f is called when the stream reaches it, or skip if
 * the device has a sticky error. Returns 0 or -1. */
int fake_cuda_enqueue(void *stream, void (*f)(void *), void (*skip)(void *), void *ctx);

#endif
