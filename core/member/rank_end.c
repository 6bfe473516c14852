/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_end: see rank_end.h.
 */
#include "core/member/rank_end.h"

static const struct end_row rows[] = {
    {END_ANY_JOB, END_FAILURE, END_STOPPING, END_STOPPED},

    {END_FIXED, END_ZERO, END_UNBORN, END_FINISHED},
    {END_FIXED, END_ZERO, END_WAITING, END_EARLY},
    {END_FIXED, END_ZERO, END_OUTSIDE, END_FINISHED},
    {END_FIXED, END_ZERO, END_INSIDE, END_EARLY},
    {END_FIXED, END_ZERO, END_DISTURBED, END_FINISHED}, /* the program has handled the error */
    {END_FIXED, END_ZERO, END_LEFT, END_FINISHED},
    {END_FIXED, END_FAILURE, END_UNBORN, END_FAILS_JOB},
    {END_FIXED, END_FAILURE, END_WAITING, END_FAILS_JOB},
    {END_FIXED, END_FAILURE, END_OUTSIDE, END_FAILS_JOB},
    {END_FIXED, END_FAILURE, END_INSIDE, END_FAILS_JOB},
    {END_FIXED, END_CODE, END_DISTURBED, END_FOLLOWS},
    /* Such as abort() after an uncaught C++ exception. */
    {END_FIXED, END_SIGNAL, END_DISTURBED, END_FOLLOWS},
    {END_FIXED, END_HOST, END_DISTURBED, END_FAILS_JOB},
    {END_FIXED, END_FAILURE, END_LEFT, END_FAILS_JOB},

    {END_CLUSTER, END_FAILURE, END_UNBORN, END_REPLACED},
    {END_CLUSTER, END_FAILURE, END_WAITING, END_REPLACED},

    {END_ELASTIC, END_ZERO, END_UNBORN, END_FINISHED},
    {END_ELASTIC, END_ZERO, END_WAITING, END_EARLY},
    {END_ELASTIC, END_ZERO, END_OUTSIDE, END_FINISHED},
    {END_ELASTIC, END_ZERO, END_INSIDE, END_EARLY},
    {END_ELASTIC, END_ZERO, END_LEFT_EARLY, END_FINISHED},
    {END_ELASTIC, END_ZERO, END_LEFT, END_FINISHED},
    {END_ELASTIC, END_ZERO, END_LEAVING, END_FINISHED},
    /* The program itself fails, so a new rank would fail too. */
    {END_ELASTIC, END_CODE, END_UNBORN, END_FAILS_JOB},
    {END_ELASTIC, END_CODE, END_WAITING, END_FAILS_JOB},
    {END_ELASTIC, END_SIGNAL, END_UNBORN, END_REPLACED},
    {END_ELASTIC, END_SIGNAL, END_WAITING, END_REPLACED},
    {END_ELASTIC, END_LAST_HOST, END_UNBORN, END_FAILS_JOB},
    {END_ELASTIC, END_LAST_HOST, END_WAITING, END_FAILS_JOB},
    {END_ELASTIC, END_HOST, END_UNBORN, END_REPLACED},
    {END_ELASTIC, END_HOST, END_WAITING, END_REPLACED},
    {END_ELASTIC, END_FAILURE, END_OUTSIDE, END_REPLACED},
    {END_ELASTIC, END_FAILURE, END_INSIDE, END_REPLACED},
    {END_ELASTIC, END_FAILURE, END_LEFT_EARLY, END_REPLACED_OR_FAILS},
    {END_ELASTIC, END_FAILURE, END_LEFT, END_FAILS_AT_END},
    {END_ELASTIC, END_FAILURE, END_CLOSING, END_FAILS_JOB},
    {END_ELASTIC, END_FAILURE, END_LEAVING, END_AS_ASKED},
};

static const char *const job_names[END_JOBS] = {
    [END_ANY_JOB] = "any",
    [END_FIXED] = "fixed",
    [END_ELASTIC] = "elastic",
    [END_CLUSTER] = "cluster",
};

static const char *const way_names[END_WAYS] = {
    [END_ZERO] = "exit 0",
    [END_CODE] = "exit n",
    [END_SIGNAL] = "signal",
    [END_HOST] = "host lost",
    [END_LAST_HOST] = "host lost, no room",
    [END_FAILURE] = "failure",
};

static const char *const time_names[END_TIMES] = {
    [END_UNBORN] = "before a world",
    [END_WAITING] = "in the first init",
    [END_OUTSIDE] = "outside the world",
    [END_INSIDE] = "in the world",
    [END_DISTURBED] = "after another's end",
    [END_LEFT_EARLY] = "left, others train",
    [END_LEFT] = "left",
    [END_CLOSING] = "hvdrun got a signal",
    [END_LEAVING] = "asked to leave",
    [END_STOPPING] = "the job is stopped",
};

static const char *const names[RANK_ENDS] = {
    [END_NONE] = "none",
    [END_FINISHED] = "finished",
    [END_EARLY] = "finished early",
    [END_FAILS_JOB] = "fails the job",
    [END_FOLLOWS] = "follows another's",
    [END_REPLACED] = "replaced",
    [END_REPLACED_OR_FAILS] = "replaced, or fails the job",
    [END_FAILS_AT_END] = "fails the job at its end",
    [END_AS_ASKED] = "left as asked",
    [END_STOPPED] = "stopped",
};

static bool holds_for_job(const struct end_row *row, enum end_job job)
{
    return row->job == job || row->job == END_ANY_JOB ||
           (row->job == END_ELASTIC && job == END_CLUSTER);
}

static bool holds_for_way(const struct end_row *row, enum end_way way)
{
    return row->way == way || (row->way == END_FAILURE && way != END_ZERO) ||
           (row->way == END_HOST && way == END_LAST_HOST);
}

const struct end_row *rank_end_row(enum end_job job, enum end_way way, enum end_time time)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].time == time && holds_for_job(&rows[i], job) && holds_for_way(&rows[i], way))
            return &rows[i];
    return NULL;
}

enum rank_end rank_end_of(enum end_job job, enum end_way way, enum end_time time)
{
    const struct end_row *row = rank_end_row(job, way, time);
    return row ? row->end : END_FAILS_JOB;
}

const struct end_row *rank_end_rows(size_t *ret_n)
{
    *ret_n = sizeof(rows) / sizeof(rows[0]);
    return rows;
}

const char *end_job_name(enum end_job job)
{
    return job_names[job];
}

const char *end_way_name(enum end_way way)
{
    return way_names[way];
}

const char *end_time_name(enum end_time time)
{
    return time_names[time];
}

const char *rank_end_name(enum rank_end end)
{
    return names[end];
}
