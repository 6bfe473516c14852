/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: samples a machine every WATCH_MS while ranks run there, and reports when a condition is
 * raised and when it is cleared. The agent calls it from its loop; one thread.
 *
 * Each condition is a row of a const table: the measured value, the limits that raise a warning or
 * a failure after so many samples in a row, and the limit below which so many samples in a row
 * clear it. Between the limits nothing changes. A condition has the id of the check that explains
 * it. A sample reads files of /proc and /sys, /dev/kmsg and the size of /dev/shm: it takes well
 * under a millisecond and frees all memory that it allocates.
 */
#ifndef HVD_DIAGNOSTICS_WATCH_H
#define HVD_DIAGNOSTICS_WATCH_H

#include <sys/types.h>

#include "diagnostics/check.h"

#define WATCH_MS 5000 /* between two samples; the table's counts of samples assume it */

struct watch;

struct watch_news {
    const struct check *check; /* its id, code, fixes */
    enum check_status status;  /* CHECK_WARN, CHECK_FAIL; CHECK_PASS: the condition is cleared */
    bool cleared;
    const char *summary; /* valid during the call */
};

typedef void watch_news_f(void *arg, const struct watch_news *news);

/* m is borrowed until watch_destroy(). The first sample only stores the counters. */
int watch_create(const struct machine *m, struct watch **ret, struct err *err);
void watch_destroy(struct watch *w);

/* Sets the processes that are tested for being stuck (state D): the ranks. The list is copied;
 * -ENOMEM. */
int watch_processes(struct watch *w, const pid_t *pids, size_t n);

/* Takes a sample; now is clock_ns(). Calls news for each condition that is raised, cleared, or
 * rises from a warning to a failure. */
void watch_look(struct watch *w, uint64_t now, watch_news_f *news, void *arg);

/* For /metrics: the i-th condition's id, last value and status (CHECK_PASS: not raised); false at
 * the end. value is NAN where it cannot be measured. */
bool watch_at(const struct watch *w, size_t i, const char **id, const char **unit, double *value,
              enum check_status *status);

#endif
