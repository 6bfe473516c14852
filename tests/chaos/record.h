/* SPDX-License-Identifier: Apache-2.0
 *
 * record: what a worker of the chaos run writes down: a line of JSON for each operation that has
 * returned, in one write(2), so that SIGKILL takes nothing back. check.py says what the lines are.
 */
#ifndef HVD_TESTS_CHAOS_RECORD_H
#define HVD_TESTS_CHAOS_RECORD_H

#include <stdint.h>

#include <hvd.h>

#include "tests/chaos/codes.h"
#include "tests/chaos/plan.h"

struct record {
    int fd;
    char uid[64]; /* process id and start time: no two processes have the same */
};

/* Opens DIR/UID.jsonl. 0 or -errno. */
int record_open(struct record *r, const char *dir);
void record_close(struct record *r);

/* {"t": type, "ms": now, ...}: format gives the other fields, without the braces. A line that
 * cannot be written ends the process (exit code 6): what is not written down cannot be checked. */
void record_line(struct record *r, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void record_op(struct record *r, uint32_t epoch, const struct plan *p, int index, int rc,
               const struct codes_verdict *v);

#endif
