/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_end: what the end of a rank's process means for the job: a const table {job, how it ended,
 * when} -> end. Pure. roster_life.c stores a member's end and applies it, roster_text.c describes
 * it, `hvdrun --explain-states` prints the table, the project's README.md explains it.
 */
#ifndef HVD_MEMBER_RANK_END_H
#define HVD_MEMBER_RANK_END_H

#include <stdbool.h>
#include <stddef.h>

enum end_job {
    END_ANY_JOB, /* only in rows of the table */
    END_FIXED,
    END_ELASTIC,
    /* Elastic, with hosts from a cluster that decides what a failure means. Rows of END_ELASTIC
       hold for it where it has no row of its own. */
    END_CLUSTER,
    END_JOBS,
};

enum end_way {
    END_ZERO, /* exit code 0: return, exit(0), os._exit(0) */
    END_CODE, /* another exit code: exit(n), an exception; or a program that cannot start */
    /* A signal: a crash, kill, the OOM killer; or a death whose cause is not known yet. */
    END_SIGNAL,
    END_HOST, /* its host or its agent is lost */
    /* Its host is lost, and the other hosts have fewer slots than the job's minimum. Asked only
     * before the first epoch. Rows of END_HOST hold for it too. */
    END_LAST_HOST,
    END_FAILURE, /* only in rows of the table: any way but END_ZERO */
    END_WAYS,
};

enum end_time {
    END_UNBORN,     /* before the job's first epoch, and it had not called hvd_init() */
    END_WAITING,    /* before the job's first epoch, for which it waited in hvd_init() */
    END_OUTSIDE,    /* neither in the world nor waiting for it; elastic: or never in a world */
    END_INSIDE,     /* in the world, or waiting to come back into it */
    END_DISTURBED,  /* fixed: in the world, after another rank's end made its operations fail */
    END_LEFT_EARLY, /* elastic: it had called hvd_shutdown(), other ranks train on */
    END_LEFT,       /* it had called hvd_shutdown(); elastic: no other rank trains any more */
    END_CLOSING,    /* elastic: a signal to hvdrun ends the job */
    END_LEAVING,    /* it was asked to leave and failed, or it ended with 0 outside the world */
    END_STOPPING,   /* the job was being stopped */
    END_TIMES,
};

enum rank_end {
    END_NONE,     /* it has not ended */
    END_FINISHED, /* it has ended with 0 and no rank needs it */
    /* It has ended with 0 too early: its peers are told. In a fixed job it is named if one of them
     * fails because of that. */
    END_EARLY,
    END_FAILS_JOB, /* the job fails: the first such rank is named, and hvdrun exits with its code */
    /* The job fails as a consequence of another rank's end: that rank is named; this rank's code is
     * used only if the other one's is 0. */
    END_FOLLOWS,
    END_REPLACED, /* a new member replaces it */
    /* A new member replaces it; if the job ends before that one is admitted, hvdrun exits with this
     * rank's code. */
    END_REPLACED_OR_FAILS,
    /* The job fails when the other ranks have ended: this rank is named, and hvdrun exits with its
     * code. */
    END_FAILS_AT_END,
    END_AS_ASKED, /* it was asked to leave: how it ended does not matter */
    END_STOPPED,  /* it ended because the job was being stopped: never named */
    RANK_ENDS,
};

struct end_row {
    enum end_job job;
    enum end_way way;
    enum end_time time;
    enum rank_end end;
};

/* The end for any combination that a roster produces; END_FAILS_JOB for any other. */
enum rank_end rank_end_of(enum end_job job, enum end_way way, enum end_time time);

/* All rows, for printing. The first one that matches holds. */
const struct end_row *rank_end_rows(size_t *ret_n);

/* The row that rank_end_of() uses, NULL: none. */
const struct end_row *rank_end_row(enum end_job job, enum end_way way, enum end_time time);

const char *end_job_name(enum end_job job);
const char *end_way_name(enum end_way way);
const char *end_time_name(enum end_time time);
const char *rank_end_name(enum rank_end end);

/* True for an end after which the exit code may decide the job's. */
static inline bool rank_end_counts(enum rank_end end)
{
    return end >= END_FAILS_JOB && end <= END_FAILS_AT_END;
}

#endif
