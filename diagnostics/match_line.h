/* SPDX-License-Identifier: Apache-2.0
 *
 * match_line: one line of a log: without colours, its rank, time and level, and as it is shown.
 * Pure.
 */
#ifndef HVD_DIAGNOSTICS_MATCH_LINE_H
#define HVD_DIAGNOSTICS_MATCH_LINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "diagnostics/match_time.h"

struct match_meta {
    int rank; /* -1: the line does not tell */
    struct match_time time;
    bool info;   /* its level is INFO, DEBUG or TRACE */
    size_t text; /* where the text begins behind times and prefixes of launchers */
};

/* The line without terminal sequences, NUL and other controls as blanks, into dst with a NUL behind
 * it: what expressions are run on. Returns its length. */
size_t match_line_clean(const uint8_t *raw, size_t len, char *dst, size_t size);

/* What the beginning of a clean line tells. */
void match_line_meta(const char *clean, struct match_meta *ret);

/* The line for people: terminal sequences gone, controls as \xNN, what is not UTF-8 as U+FFFD, at
 * most size - 1 bytes: its head and what is around the clean position at. */
void match_line_show(const uint8_t *raw, size_t len, size_t at, char *dst, size_t size);

/* The rank in a file's name: "out/rank.3/stderr", "rank3.log", "train-rank_03.txt"; -1: none. */
int match_line_rank_of_name(const char *name);

#endif
