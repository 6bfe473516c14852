/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_end: see rank_end.h.
 */
#include "core/member/rank_end.h"

#define FIXED   false
#define ELASTIC true

static const struct end_row rows[] = {
    {FIXED, END_ZERO, END_UNBORN, END_WELL},
    {FIXED, END_ZERO, END_INSIDE, END_EARLY},
    {FIXED, END_ZERO, END_DISTURBED, END_WELL}, /* the program has handled the error */
    {FIXED, END_ZERO, END_LEFT_LAST, END_WELL},
    {FIXED, END_CODE, END_UNBORN, END_FIRST},
    {FIXED, END_CODE, END_INSIDE, END_FIRST},
    {FIXED, END_CODE, END_DISTURBED, END_FOLLOWS},
    {FIXED, END_CODE, END_LEFT_LAST, END_FIRST},
    {FIXED, END_SIGNAL, END_UNBORN, END_FIRST},
    {FIXED, END_SIGNAL, END_INSIDE, END_FIRST},
    /* Such as abort() after an uncaught C++ exception. */
    {FIXED, END_SIGNAL, END_DISTURBED, END_FOLLOWS},
    {FIXED, END_SIGNAL, END_LEFT_LAST, END_FIRST},
    {FIXED, END_HOST, END_UNBORN, END_FIRST},
    {FIXED, END_HOST, END_INSIDE, END_FIRST},
    {FIXED, END_HOST, END_DISTURBED, END_FIRST},
    {FIXED, END_HOST, END_LEFT_LAST, END_FIRST},

    {ELASTIC, END_ZERO, END_UNBORN, END_WELL},
    {ELASTIC, END_ZERO, END_OUTSIDE, END_WELL},
    {ELASTIC, END_ZERO, END_INSIDE, END_EARLY},
    {ELASTIC, END_ZERO, END_LEFT_EARLY, END_WELL},
    {ELASTIC, END_ZERO, END_LEFT_LAST, END_WELL},
    /* The program itself fails, so a new rank would fail too. */
    {ELASTIC, END_CODE, END_UNBORN, END_FIRST},
    {ELASTIC, END_CODE, END_OUTSIDE, END_REPLACED},
    {ELASTIC, END_CODE, END_INSIDE, END_REPLACED},
    {ELASTIC, END_CODE, END_LEFT_EARLY, END_REPLACED_OR_FAILS},
    {ELASTIC, END_CODE, END_LEFT_LAST, END_FAILS_AT_END},
    {ELASTIC, END_SIGNAL, END_UNBORN, END_REPLACED},
    {ELASTIC, END_SIGNAL, END_OUTSIDE, END_REPLACED},
    {ELASTIC, END_SIGNAL, END_INSIDE, END_REPLACED},
    {ELASTIC, END_SIGNAL, END_LEFT_EARLY, END_REPLACED_OR_FAILS},
    {ELASTIC, END_SIGNAL, END_LEFT_LAST, END_FAILS_AT_END},
    {ELASTIC, END_HOST, END_UNBORN, END_REPLACED},
    {ELASTIC, END_HOST, END_OUTSIDE, END_REPLACED},
    {ELASTIC, END_HOST, END_INSIDE, END_REPLACED},
    {ELASTIC, END_HOST, END_LEFT_EARLY, END_REPLACED_OR_FAILS},
    {ELASTIC, END_HOST, END_LEFT_LAST, END_FAILS_AT_END},
};

static const char *const way_names[END_WAYS] = {
    [END_ZERO] = "exit 0",
    [END_CODE] = "exit n",
    [END_SIGNAL] = "signal",
    [END_HOST] = "host lost",
};

static const char *const time_names[END_TIMES] = {
    [END_UNBORN] = "before a world",         [END_OUTSIDE] = "outside the world",
    [END_INSIDE] = "in the world",           [END_DISTURBED] = "after another's end",
    [END_LEFT_EARLY] = "left, others train", [END_LEFT_LAST] = "left",
};

static const char *const verdict_names[END_VERDICTS] = {
    [END_WELL] = "finished",
    [END_EARLY] = "finished early",
    [END_FIRST] = "fails the job",
    [END_FOLLOWS] = "follows another's",
    [END_REPLACED] = "replaced",
    [END_REPLACED_OR_FAILS] = "replaced, or fails the job",
    [END_FAILS_AT_END] = "fails the job at its end",
};

enum end_verdict rank_end_verdict(bool elastic, enum end_way way, enum end_time time)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].elastic == elastic && rows[i].way == way && rows[i].time == time)
            return rows[i].verdict;
    return rank_end_verdict(elastic, way, END_INSIDE);
}

const struct end_row *rank_end_rows(size_t *ret_n)
{
    *ret_n = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

const char *end_way_name(enum end_way way)
{
    return way_names[way];
}

const char *end_time_name(enum end_time time)
{
    return time_names[time];
}

const char *end_verdict_name(enum end_verdict verdict)
{
    return verdict_names[verdict];
}
