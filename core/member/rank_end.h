/* SPDX-License-Identifier: Apache-2.0
 *
 * rank_end: what the end of a rank's process means for the job: a const table {kind of job, how it
 * ended, when} -> verdict. Pure. roster.c applies the verdicts; `hvdrun --explain-states` prints
 * the table; README.md has it in words.
 */
#ifndef HVD_MEMBER_RANK_END_H
#define HVD_MEMBER_RANK_END_H

#include <stdbool.h>
#include <stddef.h>

enum end_way {
    END_ZERO,   /* exit code 0: return, exit(0), os._exit(0) */
    END_CODE,   /* another exit code: exit(n), an exception; also a program that cannot start */
    END_SIGNAL, /* a signal: a crash, kill, the OOM killer; or a death whose cause is not known yet
                 */
    END_HOST,   /* its host or its agent is lost */
    END_WAYS,
};

enum end_time {
    END_UNBORN,    /* the job has no world yet */
    END_ASIDE,     /* elastic: others train; this rank was never in their world */
    END_INSIDE,    /* in the world, or waiting to be in it */
    END_DISTURBED, /* fixed: in the world, after another rank's end had made its operations fail */
    END_BETWEEN,   /* elastic: it called hvd_shutdown(), others train on */
    END_BEHIND,    /* it called hvd_shutdown(); elastic: no other rank trains any more */
    END_TIMES,
};

enum end_verdict {
    END_WELL,    /* it has finished */
    END_EARLY,   /* it has finished, and the ranks that counted on it are told; of a fixed job it is
                    named where one of them fails because of that */
    END_FIRST,   /* the job fails: the first such rank is named, and its code is hvdrun's */
    END_FOLLOWS, /* the job fails: the rank whose end it follows is named; its own code is hvdrun's
                    only where that rank's is 0 */
    END_REPLACED, /* another rank takes its place */
    END_OWED,   /* another rank takes its place; until that one is in, the job ends with its code */
    END_SPOILS, /* when the others have ended it is named, and its code is hvdrun's */
    END_VERDICTS,
};

struct end_row {
    bool elastic;
    enum end_way way;
    enum end_time time;
    enum end_verdict verdict;
};

/* Every combination has one; a time that a job of that kind does not know counts as END_INSIDE. */
enum end_verdict rank_end_verdict(bool elastic, enum end_way way, enum end_time time);

/* All rows, for printing. */
const struct end_row *rank_end_rows(size_t *ret_n);

const char *end_way_name(enum end_way way);
const char *end_time_name(enum end_time time);
const char *end_verdict_name(enum end_verdict verdict);

#endif
