/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: reads along what ranks print, line by line, and knows at the end what made the job fail
 * (diagnostics/match.h). Owned by the coordinator; one thread. Without memory it reads less and
 * says less.
 */
#ifndef HVD_AGENT_EXPLAIN_H
#define HVD_AGENT_EXPLAIN_H

#include "agent/frames.h"
#include "diagnostics/match.h"

struct explain {
    bool reads;
    struct match *match; /* NULL: nothing was printed yet */
    int nranks;
    const char *dir;                                /* of the output files, NULL: none */
    struct match_source *(*sources)[FRAME_STREAMS]; /* [nranks] */
};

/* dir is borrowed. */
void explain_init(struct explain *e, int nranks, const char *dir);
void explain_fini(struct explain *e);

/* There are nranks now. */
void explain_grow(struct explain *e, int nranks);
void explain_feed(struct explain *e, const struct frame *frame);

struct explanation {
    char cause[320]; /* "/dev/shm is full" */
    char where[320]; /* "rank 3 stderr, line 12" or the file */
    char line[MATCH_TEXT];
    char fix[512];
};

/* After a failure. false: nothing that was printed explains it. */
bool explain_failure(struct explain *e, struct explanation *ret);

#endif
