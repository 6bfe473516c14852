/* SPDX-License-Identifier: Apache-2.0
 *
 * printer: the ranks' output, line by line, behind [rank]<stdout>: on hvdrun's own two streams, and
 * as it came into files. On hvdrun's loop, one thread; it never waits for a reader or a disk. What
 * happens where these are too slow is in outlet.h. printer_files.c has the files.
 */
#ifndef HVD_AGENT_PRINTER_H
#define HVD_AGENT_PRINTER_H

#include <stdbool.h>

#include "agent/frames.h"
#include "agent/outlet.h"
#include "agent/sink.h"
#include "core/base/err.h"

struct printer_stream {
    struct buf line; /* what has no newline yet and was not shown */
    uint64_t came;   /* clock: when the last of it came */
    bool cut;        /* the beginning of its line was dropped: so is the rest */
    int file;        /* of printer.writer, -1: none */
    bool file_cut;   /* the same, in the file */
    bool file_open;  /* the last byte in the file is no newline */
    struct outlet_loss file_loss;
};

struct printer {
    struct loop *loop;
    int nranks;
    int first_ranks; /* at the beginning: the names of files are as wide as for them */
    bool prefix;
    bool append;                     /* files go on where they ended */
    struct printer_stream **streams; /* [nranks], each an array of FRAME_STREAMS */
    char *dir;                       /* of the output files, NULL: none */
    struct sink sinks[FRAME_STREAMS];
    struct printer_stream *open[FRAME_STREAMS]; /* whose line stands unfinished on that sink */
    struct outlet_loss loss[FRAME_STREAMS];     /* of these, to be said */
    bool dropping[FRAME_STREAMS];               /* printer_stalled() has told */
    struct writer *writer;                      /* of the files, NULL: there are none */
    size_t max;                                 /* bytes that may wait for one outlet */
    struct loop_timer timer;                    /* shows unfinished lines */
    struct loop_timer flow_timer; /* looks whether ranks that wait for a reader may go on */
    void (*drained)(void *arg);
    void *arg;
    bool finishing;
    bool said;          /* printer_lost() has told of standard output */
    int file_error;     /* errno, told by printer_lost(); -1: told */
    char file_name[32]; /* which file it was */
};

/* dir NULL: no files. append: those that are there go on. drained: printer_full() was true and is
 * so no longer. */
int printer_init(struct printer *p, struct loop *loop, int nranks, bool prefix, const char *dir,
                 bool append, void (*drained)(void *arg), void *arg, struct err *err);
void printer_fini(struct printer *p);

/* There are nranks now: members of an elastic job that come later. Without memory what they print
 * is lost. */
void printer_grow(struct printer *p, int nranks);

void printer_put(struct printer *p, const struct frame *frame);

/* Lines of hvdrun itself or of an agent, to standard error, with their newline. */
void printer_say(struct printer *p, const char *text, size_t n);

/* Shows every unfinished line, at the end. */
void printer_finish(struct printer *p);

/* What could not be written since it was last asked: 0, or an errno (EPIPE: whoever read standard
 * output is gone) with the name of the output in dst. */
int printer_lost(struct printer *p, char *dst, size_t size);

/* Lines are dropped from now on, because nobody reads them: the name of the output in dst. Once
 * until the reader goes on. */
bool printer_stalled(struct printer *p, char *dst, size_t size);

/* Bytes that nobody has read yet, or that are not on a disk; without those of files whose disk has
 * taken nothing for FILES_LAST_MS. */
size_t printer_pending(const struct printer *p);

/* A reader is slow, or a disk: whoever prints should wait. */
bool printer_full(const struct printer *p);

#endif
