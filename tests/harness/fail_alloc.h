/* SPDX-License-Identifier: Apache-2.0
 *
 * fail_alloc: replaces malloc() and related functions in a test program, to count allocations and
 * make them fail on demand, including those of its libraries. It defines these functions, so
 * exactly one file of the program includes it. Allocations of all threads count. FAIL_ALLOC is 0
 * under sanitizers, which have their own malloc(); then nothing is counted and nothing fails.
 */
#ifndef HVD_TESTS_FAIL_ALLOC_H
#define HVD_TESTS_FAIL_ALLOC_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAIL_ALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAIL_ALLOC 0
#endif
#endif
#ifndef FAIL_ALLOC
#define FAIL_ALLOC 1
#endif

static struct {
    _Atomic long calls; /* allocations so far */
    _Atomic long live;  /* blocks that were not freed */
    /* The allocation with this number from now fails, counted from 0; -1: none. */
    _Atomic long fail_at;
    bool on;  /* all allocations after that one fail too */
    bool own; /* count only allocations by the program's own code */
    _Atomic long failed;
} fail_alloc = {.fail_at = -1};

#if FAIL_ALLOC
/* glibc's own names for what is replaced here. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *p);
/* NOLINTEND(bugprone-reserved-identifier) */

/* Visible, so that libraries use them too. */
#pragma GCC visibility push(default)

/* The program's code range, set by the linker. NOLINTNEXTLINE(bugprone-reserved-identifier) */
extern const char __executable_start[], etext[];

static bool fail_alloc_now(const void *caller)
{
    const char *at = caller;
    fail_alloc.calls++;
    if (fail_alloc.own && (at < __executable_start || at >= etext))
        return false;
    if (fail_alloc.fail_at < 0 || fail_alloc.fail_at-- != 0)
        return false;
    if (fail_alloc.on)
        fail_alloc.fail_at = 0;
    fail_alloc.failed++;
    errno = ENOMEM;
    return true;
}

static void *fail_alloc_counted(void *p)
{
    fail_alloc.live += p != NULL;
    return p;
}

void *malloc(size_t size)
{
    return fail_alloc_now(__builtin_return_address(0)) ? NULL
                                                       : fail_alloc_counted(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fail_alloc_now(__builtin_return_address(0)) ? NULL
                                                       : fail_alloc_counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
    if (fail_alloc_now(__builtin_return_address(0)))
        return NULL;
    void *q = __libc_realloc(p, size);
    return p ? q : fail_alloc_counted(q);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fail_alloc_now(__builtin_return_address(0))
               ? NULL
               : fail_alloc_counted(__libc_memalign(alignment, size));
}

void free(void *p)
{
    fail_alloc.live -= p != NULL;
    __libc_free(p);
}

#pragma GCC visibility pop
#endif

/* Calls f repeatedly. In each call another allocation fails, first alone, then together with all
 * later ones. f returns 0 when all went well, including its result, and -ENOMEM when it was told of
 * the failure. Any other value is a fault, and so is a leaked block. Prints each fault and returns
 * their number. */
static inline int fail_alloc_walk(const char *name, int (*f)(void))
{
    /* The first call may keep memory, such as tables that libraries create once. */
    int faults = 0, rc = f();
    if (rc != 0)
        printf("%s: returns %d although no allocation failed\n", name, rc);
    faults += rc != 0;
    for (int on = 0; on < 2; on++) {
        bool all = false;
        for (long n = 0; FAIL_ALLOC && !all && faults < 20; n++) {
            long live = fail_alloc.live;
            fail_alloc.failed = 0;
            fail_alloc.on = on;
            fail_alloc.fail_at = n;
            rc = f();
            fail_alloc.fail_at = -1;
            all = fail_alloc.failed == 0;
            if ((rc != 0 && rc != -ENOMEM) || (rc != 0 && all) || fail_alloc.live != live) {
                printf("%s: allocation %ld%s fails: %d, %ld blocks left\n", name, n,
                       on ? " and all after it" : "", rc, fail_alloc.live - live);
                faults++;
            }
        }
    }
    return faults;
}

#endif
