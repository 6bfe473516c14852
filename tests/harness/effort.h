/* SPDX-License-Identifier: Apache-2.0
 *
 * effort: how many rounds, seeds and sizes a test runs. A sanitizer finds its faults in few rounds,
 * and a round takes 3 (ASan) to 15 times (TSan) as long with it.
 */
#ifndef HVD_TESTS_HARNESS_EFFORT_H
#define HVD_TESTS_HARNESS_EFFORT_H

#if defined(__SANITIZE_THREAD__)
#define EFFORT_SHARE 8
#elif defined(__SANITIZE_ADDRESS__)
#define EFFORT_SHARE 4
#else
#define EFFORT_SHARE 1
#endif

/* For what is no count of rounds: a plain build; a build with TSan. */
#define EFFORT_WHOLE (EFFORT_SHARE == 1)
#define EFFORT_LEAST (EFFORT_SHARE == 8)

/* n rounds in a plain build, a share of them with a sanitizer, at least one. */
#define EFFORT(n) (((n) + EFFORT_SHARE - 1) / EFFORT_SHARE)

#endif
