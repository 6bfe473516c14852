/* SPDX-License-Identifier: Apache-2.0
 *
 * record: the record of a worker in the chaos run: a line of JSON for each operation that has
 * returned, in one write(2), so that SIGKILL loses nothing. check.py describes the lines.
 */
#ifndef HVD_TESTS_CHAOS_RECORD_H
#define HVD_TESTS_CHAOS_RECORD_H

#include <stdint.h>

#include <hvd.h>

#include "tests/chaos/codes.h"
#include "tests/chaos/plan.h"

struct record {
    int fd;
    char uid[64]; /* process id and start time: unique */
};

/* Opens DIR/UID.jsonl. 0 or -errno. */
int record_open(struct record *r, const char *dir);
void record_close(struct record *r);

/* {"t": type, "ms": now, ...}: format gives the other fields, without the braces. A line that
 * cannot be written ends the process (exit code 6), because it could not be checked. */
void record_line(struct record *r, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void record_op(struct record *r, uint32_t epoch, const struct plan *p, int index, int rc,
               const struct codes_verdict *v);

/* Records that a call, `what`, failed with rc at this step, with hvd_error(), and says so on
 * standard error. Returns the exit code of a worker, 3. */
int record_fail(struct record *r, uint64_t step, const char *what, int rc);

#endif
