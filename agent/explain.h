/* SPDX-License-Identifier: Apache-2.0
 *
 * explain: scans the ranks' output for known error messages, to name the cause when the job fails
 * (diagnostics/match.h). Owned by the coordinator; one thread. Without memory it scans and reports
 * less.
 */
#ifndef HVD_AGENT_EXPLAIN_H
#define HVD_AGENT_EXPLAIN_H

#include "agent/frames.h"
#include "diagnostics/match.h"

struct explain {
    bool reads;
    struct match *match; /* NULL: nothing was printed yet */
    int nranks;
    int first_ranks; /* nranks at the start, for printer_rank_folder() */
    const char *dir; /* folder of the output files, NULL: none */
    struct match_source *(*sources)[FRAME_STREAMS]; /* [nranks] */
};

/* The caller keeps dir alive. */
void explain_init(struct explain *e, int nranks, const char *dir);
void explain_fini(struct explain *e);

/* Makes room for nranks ranks. */
void explain_grow(struct explain *e, int nranks);
void explain_feed(struct explain *e, const struct frame *frame);

struct explanation {
    char cause[320]; /* such as "/dev/shm is full" */
    char where[320]; /* "rank 3 stderr, line 12", or the output file and line */
    char line[MATCH_TEXT];
    char fix[512];
};

/* Call after a failure. false: no known message in the output. */
bool explain_failure(struct explain *e, struct explanation *ret);

#endif
