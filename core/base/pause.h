/* SPDX-License-Identifier: Apache-2.0
 *
 * pause: to be called in each iteration of a loop that spins on another processor's store. Any
 * thread.
 */
#ifndef HVD_BASE_PAUSE_H
#define HVD_BASE_PAUSE_H

/* Yields the core to its other hardware thread and saves power. Not a memory barrier. On aarch64
 * most cores treat `yield` as a no-op, while `isb` takes about as long as x86's `pause`. */
static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#else
    __asm__ volatile("" ::: "memory");
#endif
}

#endif
