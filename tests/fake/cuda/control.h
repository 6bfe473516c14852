/* SPDX-License-Identifier: Apache-2.0
 *
 * control: what a test tells the fake libcuda.so.1 in its own process, beyond the script in
 * FAKE_CUDA (script.h; keys: version count sm, FUNCTION=code, hang=FUNCTION, crash=FUNCTION,
 * delay_us=n, unified=1 (memory.c), later=FUNCTION:code for an error that shows on the stream,
 * stall=FUNCTION for work that never ends). Found with dlsym in the fake.
 */
#ifndef HVD_TESTS_FAKE_CUDA_CONTROL_H
#define HVD_TESTS_FAKE_CUDA_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

struct CUstream_st;

struct fake_cuda_control {
    /* Calls of that function so far, of all functions for NULL. */
    long (*calls)(const char *function);
    /* The n-th call from now (0: the next) answers code and does nothing; n < 0: none does. What
     * gives something back does not fail, and a question that is repeated counts once. */
    void (*fail_call)(long n, unsigned code);
    bool (*failed)(void); /* it has come to that */
    /* The next work on this device makes code stick to it. */
    void (*break_device)(int device, unsigned code);
    /* As if this process had been started anew for that device: nothing sticks any more. */
    void (*mend)(int device);
    void (*stall)(bool on);
    void (*delay)(unsigned us);
    /* CUstreamCaptureStatus of it from now on; 1: it is captured. */
    void (*capture)(struct CUstream_st *stream, unsigned status);
    /* Streams, events, modules, memory and retained contexts that were not given back. */
    long (*live)(void);
    /* Bytes of locked memory of the host that were not given back. */
    size_t (*locked)(void);
};

extern const struct fake_cuda_control fake_cuda_control;

/* For other fake libraries (tests/fake/nccl): f is called when the stream comes to it, or skip
 * where the device does nothing any more. 0, or -1. */
int fake_cuda_enqueue(void *stream, void (*f)(void *), void (*skip)(void *), void *ctx);

#endif
