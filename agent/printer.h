/* SPDX-License-Identifier: Apache-2.0
 *
 * printer: writes the ranks' output: line by line with the prefix [rank]<stdout>: to hvdrun's own
 * streams, and unchanged into files. On hvdrun's loop, one thread; never waits for a reader or a
 * disk. outlet.h says what happens when these are too slow. printer_files.c has the files.
 */
#ifndef HVD_AGENT_PRINTER_H
#define HVD_AGENT_PRINTER_H

#include <stdbool.h>

#include "agent/frames.h"
#include "agent/outlet.h"
#include "agent/sink.h"
#include "core/base/err.h"

struct printer_stream {
    struct buf line; /* an incomplete line that was not shown yet */
    uint64_t came;   /* clock_ns() when its last byte was received */
    bool cut;        /* the start of this line was dropped: drop the rest too */
    int file;        /* index in printer.writer, -1: none */
    bool file_cut;   /* as cut, for the line in the file */
    bool file_open;  /* the last byte in the file is not a newline */
    struct outlet_loss file_loss;
};

#define PRINTER_FOLDER 24

struct printer {
    struct loop *loop;
    int nranks;
    int first_ranks; /* nranks at the start: determines the width of file names */
    bool prefix;
    bool stamps; /* with prefix: the time before it, as Horovod has it; set after printer_init() */
    bool append; /* append to existing files */
    struct printer_stream **streams; /* [nranks], each an array of FRAME_STREAMS */
    char *dir;                       /* folder of the output files, NULL: none */
    struct sink sinks[FRAME_STREAMS];
    struct printer_stream *open[FRAME_STREAMS]; /* stream with an incomplete last line, or NULL */
    struct outlet_loss loss[FRAME_STREAMS];     /* losses of the sinks that are not yet reported */
    bool dropping[FRAME_STREAMS];               /* printer_stalled() has reported this loss */
    struct writer *writer;                      /* writes the files, NULL: no files */
    size_t max; /* HVD_OUTPUT_BUFFER: if so many bytes wait for one outlet, ranks wait or output is
                   dropped (outlet.h) */
    struct loop_timer timer;      /* shows incomplete lines */
    struct loop_timer flow_timer; /* checks whether ranks may continue to print */
    uint64_t resumed;             /* clock_ns() when ranks that waited last continued; 0: never */
    void (*drained)(void *arg);
    void *arg;
    bool finishing;
    bool said;                          /* printer_lost() has reported standard output */
    int file_error;                     /* errno for printer_lost(); -1: reported */
    char file_name[PRINTER_FOLDER + 8]; /* the file that file_error is about */
};

/* dir NULL: no files. append: append to existing files. drained is called when printer_full()
 * becomes false again. */
int printer_init(struct printer *p, struct loop *loop, int nranks, bool prefix, const char *dir,
                 bool append, void (*drained)(void *arg), void *arg, struct err *err);
void printer_fini(struct printer *p);

/* Writes the name of a rank's folder among the output files: "rank.03" if the job started with 11
 * to 100 ranks. */
void printer_rank_folder(int first_ranks, int rank, char dst[PRINTER_FOLDER]);

/* Makes room for nranks ranks, for joiners of an elastic job. Output of ranks without room is lost.
 */
void printer_grow(struct printer *p, int nranks);

void printer_put(struct printer *p, const struct frame *frame);

/* Prints lines of hvdrun or of an agent on standard error; text includes their newlines. */
void printer_say(struct printer *p, const char *text, size_t n);

/* Shows all incomplete lines, at the end. */
void printer_finish(struct printer *p);

/* The next output that could not be written: 0: none, else an errno (EPIPE: the reader of standard
 * output is gone) with the name of the output in dst. Reports each once. */
int printer_lost(struct printer *p, char *dst, size_t size);

/* True if lines are now being dropped because nobody reads them; dst gets the name of the stream.
 * Reported once until the reader continues. */
bool printer_stalled(struct printer *p, char *dst, size_t size);

/* Bytes that are not yet read or on disk. Without the files if their disk has taken nothing for
 * FILES_LAST_MS. */
size_t printer_pending(const struct printer *p);

/* Returns whether a reader or a disk is slow, so that the caller should make ranks wait. */
bool printer_full(const struct printer *p);

#endif
