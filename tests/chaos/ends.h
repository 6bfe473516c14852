/* SPDX-License-Identifier: Apache-2.0
 *
 * ends: how a worker of the chaos run ends before its work is done: by a file that nemesis.py has
 * put into the run's folder, or because it is asked to leave at its start.
 */
#ifndef HVD_TESTS_CHAOS_ENDS_H
#define HVD_TESTS_CHAOS_ENDS_H

#include <stdint.h>

#include "tests/chaos/record.h"

/* If DIR/inject has a file, takes it, sets HVD_TEST_FAIL to its name and executes this program
 * again, so that the library reads the setting at its start. */
void ends_arm(const char *dir, char **argv);

/* If DIR/doom is there, takes it, records it, and ends this process by a timer of the kernel within
 * 20 ms: nothing of this process has to run for it. random: state of plan_random(). first: the
 * first operation of the burst in flight. */
void ends_doom(struct record *record, const char *dir, uint64_t *random, uint64_t step, int first);

/* If a rank is asked to leave before it has sent HELLO, its agent sends SIGTERM. From this call on
 * that signal records "left" before it ends the process. */
void ends_note_early(const struct record *record);

#endif
