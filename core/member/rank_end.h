/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_end: what the end of a rank's process means for the job: a const table {kind of job, how it
 * ended, when} -> verdict. Pure. roster.c applies the verdicts, `hvdrun --explain-states` prints
 * the table, the project's README.md explains it.
 */
#ifndef HVD_MEMBER_RANK_END_H
#define HVD_MEMBER_RANK_END_H

#include <stdbool.h>
#include <stddef.h>

enum end_way {
    END_ZERO, /* exit code 0: return, exit(0), os._exit(0) */
    END_CODE, /* another exit code: exit(n), an exception; or a program that cannot start */
    /* A signal: a crash, kill, the OOM killer; or a death whose cause is not known yet. */
    END_SIGNAL,
    END_HOST, /* its host or its agent is lost */
    END_WAYS,
};

enum end_time {
    END_UNBORN,     /* before the job's first epoch */
    END_OUTSIDE,    /* elastic: other ranks train, and this rank was never in their world */
    END_INSIDE,     /* in the world, or waiting for admission */
    END_DISTURBED,  /* fixed: in the world, after another rank's end made its operations fail */
    END_LEFT_EARLY, /* elastic: it had called hvd_shutdown(), other ranks train on */
    END_LEFT_LAST,  /* it had called hvd_shutdown(); elastic: no other rank trains any more */
    END_TIMES,
};

enum end_verdict {
    END_WELL, /* the rank has finished */
    /* The rank has finished too early: its peers are told. In a fixed job it is named if one of
     * them fails because of that. */
    END_EARLY,
    END_FIRST, /* the job fails: the first such rank is named, and hvdrun exits with its code */
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
    END_VERDICTS,
};

struct end_row {
    bool elastic;
    enum end_way way;
    enum end_time time;
    enum end_verdict verdict;
};

/* The verdict for any combination. An end_time that does not exist for that kind of job counts as
 * END_INSIDE. */
enum end_verdict rank_end_verdict(bool elastic, enum end_way way, enum end_time time);

/* All rows, for printing. */
const struct end_row *rank_end_rows(size_t *ret_n);

const char *end_way_name(enum end_way way);
const char *end_time_name(enum end_time time);
const char *end_verdict_name(enum end_verdict verdict);

#endif
