/* SPDX-License-Identifier: Apache-2.0
 *
 * match_time: parses the time stamps of log lines. Pure.
 *
 * A time without a zone is taken as UTC: only logs of one job are compared with each other.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_TIME_H
#define HVD_DIAGNOSTICS_MATCH_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum match_time_kind {
    MATCH_TIME_NONE,
    MATCH_TIME_DATE,   /* ns since 1970 */
    MATCH_TIME_NOYEAR, /* ns since the beginning of an unknown year (shown as 2000) */
    MATCH_TIME_UPTIME, /* ns since boot, as in the kernel's log */
};

struct match_time {
    enum match_time_kind kind;
    int64_t ns;
};

/* Reads a time at the very beginning of text: ISO 8601 ("2024-05-01T10:00:03.123Z", with a blank, a
 * comma, a zone, or slashes), in brackets, syslog ("May  1 10:00:03"), ctime ("Wed May  1 10:00:03
 * 2024"), dmesg ("[  123.456789]"; from a thousand million on it is a date, as UCX writes it), kmsg
 * ("6,1,123456,-;"), glog ("E0501 10:00:03.1", also with one digit of month as PyTorch writes it).
 * Returns how many bytes it took, 0 where there is none. */
size_t match_time_read(const char *text, struct match_time *ret);

/* Returns whether the order of the two is known. */
bool match_time_comparable(struct match_time a, struct match_time b);
/* <0, 0, >0; only for comparable times. */
int match_time_compare(struct match_time a, struct match_time b);

/* "2024-05-01T10:00:03.123Z", "05-01 10:00:03.123", "123.456 s after boot"; "" for none. */
char *match_time_text(struct match_time t, char *dst, size_t size);

#endif
