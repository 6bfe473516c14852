/* SPDX-License-Identifier: Apache-2.0
 *
 * watch: looks at a machine again and again while ranks run there, and says when a condition comes
 * up and when it is over. The agent calls it from its loop; one thread.
 *
 * Each condition is a row of a const table: what is measured, from which value on it is a warning
 * or a failure and for how many looks in a row, and below which value and for how many looks it is
 * over. Between the two limits nothing changes. A condition has the id of the check that explains
 * it. A look reads files of /proc and /sys only: it takes well under a millisecond, and allocates
 * nothing that stays.
 */
#ifndef HVD_DIAGNOSTICS_WATCH_H
#define HVD_DIAGNOSTICS_WATCH_H

#include <sys/types.h>

#include "diagnostics/check.h"

#define WATCH_MS 5000 /* between two looks: the counts of the table mean this */

struct watch;

struct watch_news {
    const struct check *check; /* its id, code, fixes */
    enum check_status status;  /* CHECK_WARN, CHECK_FAIL; of a cleared one: CHECK_PASS */
    bool cleared;
    const char *summary; /* valid during the call */
};

typedef void watch_news_f(void *arg, const struct watch_news *news);

/* m is borrowed until watch_destroy(). The first look only remembers counters. */
int watch_create(const struct machine *m, struct watch **ret, struct err *err);
void watch_destroy(struct watch *w);

/* Processes whose state counts (stuck in D): those of the ranks. Copied; -ENOMEM. */
int watch_processes(struct watch *w, const pid_t *pids, size_t n);

/* One look; now is clock_ns(). Calls news for what came up, got worse or better, or is over. */
void watch_look(struct watch *w, uint64_t now, watch_news_f *news, void *arg);

/* For /metrics: the i-th condition's id, last value and status (pass: not up); false at the end.
 * value is NAN where it cannot be measured here. */
bool watch_at(const struct watch *w, size_t i, const char **id, const char **unit, double *value,
              enum check_status *status);

#endif
