/* SPDX-License-Identifier: Apache-2.0
 *
 * match_line: one line of a log: its text without escape sequences, its rank, time and level, and
 * the form that is shown. Pure.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_LINE_H
#define HVD_DIAGNOSTICS_MATCH_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/match_time.h"

struct match_meta {
    int rank; /* -1: the line does not name one */
    struct match_time time;
    bool info;   /* the line's level is INFO, DEBUG or TRACE */
    size_t text; /* where the text begins, behind time stamps and launchers' prefixes */
};

/* Copies a line to dst for matching, with a NUL at the end: escape sequences are removed,
 * control characters become blanks. Returns its length. */
size_t match_line_clean(const uint8_t *raw, size_t len, char *dst, size_t size);

/* Parses the prefix of a cleaned line. */
void match_line_meta(const char *clean, struct match_meta *ret);

/* Copies a line to dst for people, at most size - 1 bytes: its beginning and the text around
 * position at of the cleaned line. Escape sequences are removed, a tab becomes a blank, other
 * control characters become \xNN, invalid UTF-8 becomes U+FFFD. */
void match_line_show(const uint8_t *raw, size_t len, size_t at, char *dst, size_t size);

/* The rank in a file's name: "out/rank.3/stderr", "rank3.log", "train-rank_03.txt"; -1: none. */
int match_line_rank_of_name(const char *name);

#endif
