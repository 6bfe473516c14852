/* SPDX-License-Identifier: Apache-2.0
 *
 * rank: one rank's process: its start, its output pipes, its control socket, its end. Owned by the
 * agent, on its loop, one thread.
 */
#ifndef HVD_AGENT_RANK_H
#define HVD_AGENT_RANK_H

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

#include "agent/frames.h"
#include "agent/lifelines.h"
#include "agent/tail.h"
#include "core/base/ctl.h"
#include "core/base/err.h"
#include "core/base/loop.h"
#include "core/member/protocol.h"

struct rank;

/* What the owner does about a rank. */
struct rank_ops {
    /* Bytes of its output, at most FRAME_MAX. */
    void (*output)(void *arg, struct rank *rank, enum frame_stream stream, const void *data,
                   size_t n);
    /* A frame from its control socket; its descriptors are the callee's to close. */
    void (*frame)(void *arg, struct rank *rank, struct ctl_frame *frame);
    /* Its command runs. Not called if the command cannot be run: then exited comes. */
    void (*started)(void *arg, struct rank *rank);
    /* Its process has ended (rank->code) and nothing of what it said is left to read. */
    void (*exited)(void *arg, struct rank *rank);
    /* Its process group and its pipes are gone too. */
    void (*closed)(void *arg, struct rank *rank);
};

/* How a rank is started. argv and cwd outlive the rank. */
struct rank_spec {
    char *const *argv, *const *env; /* env: the whole environment */
    const char *cwd;
    int exec_ms;           /* the command runs after so long, or the rank is ended */
    const cpu_set_t *cpus; /* NULL: not bound */
};

struct rank_stream {
    struct rank *rank;
    enum frame_stream which;
    int fd; /* -1: closed */
    struct loop_fd lfd;
};

struct rank {
    struct loop *loop;
    const struct rank_ops *ops;
    void *arg;
    struct seat seat;
    pid_t pid; /* 0: not started */
    const char *program, *cwd;
    int report; /* whether the command runs (spawn_result); -1: that is known */
    struct loop_fd report_lfd;
    struct loop_timer exec_timer;
    int exec_ms;
    bool over, gone;
    int code;       /* of its end: exit code, -signal */
    char text[512]; /* why it could not start */
    struct rank_stream streams[FRAME_STREAMS];
    struct tail tail; /* of stderr */
    int ctl_fd;       /* -1: closed */
    struct ctl ctl;
    struct loop_fd ctl_lfd;
    struct loop_timer again_timer; /* descriptors that the kernel did not pass are tried again */
    struct loop_timer end_timer;
    uint64_t kill_at; /* when its group gets SIGKILL; 0: not yet decided */
    /* The owner's, for relaying: */
    bool hello, bye, waiting, posted;
    bool arrived;      /* it has a place, and has not said yet that it is ready to come in */
    bool dead;         /* its process is known to be gone, or given up, before it is reaped */
    bool leaving;      /* it was told to leave */
    int out;           /* its BYE was -errno: it cannot go on; 0: it was not */
    enum card_why why; /* of its last HELLO */
    uint64_t done;     /* operations that it had finished when it said BYE */
    uint32_t was_in;   /* the epoch that it named there */
    int place;         /* its rank in the last roster that it got, -1: it got none */
    uint32_t epoch;    /* of that */
    struct loop_timer leave_timer; /* it was asked to leave: when it is made to */
    int speaker;                   /* the process that said HELLO: perhaps a child of ours */
    struct loop_fd speaker_lfd;    /* its end */
    struct pulse pulse;            /* of the speaker */
    struct buf card;
    struct report_item progress;
    bool progress_new;
};

/* Makes the control socket (the child inherits *ret_child_fd as its HVD_AGENT_FD). */
int rank_init(struct rank *rank, struct loop *loop, const struct rank_ops *ops, void *arg,
              const struct seat *seat, int *ret_child_fd, struct err *err);

/* Forks the process; child_fd is closed here. Whether the command runs is known later: started or
 * exited tells. A command that cannot be run ends the rank with code 127 (not found) or 126, and
 * its text says why. */
int rank_start(struct rank *rank, const struct rank_spec *spec, int child_fd, struct err *err);

/* A signal to its whole process group; nothing when that is gone. */
void rank_kill(struct rank *rank, int signo);

/* SIGTERM now, SIGKILL after grace_ms, to its whole process group. */
void rank_end(struct rank *rank, int grace_ms);

/* Its process has ended with this wait status: called by whoever reaps, before reaping when
 * possible. */
void rank_exited(struct rank *rank, int status);

/* The owner can take output again, or not. */
void rank_pause(struct rank *rank, bool pause);

/* Hands out the frames that wait in its control socket now. */
void rank_read_frames(struct rank *rank);

/* A frame to the rank, sent or queued. cargo NULL: without descriptors. If descriptors cannot be
 * passed, the rank is ended, and its text says why. */
void rank_send(struct rank *rank, enum ctl_type type, const struct buf *body,
               struct ctl_cargo *cargo);

void rank_fini(struct rank *rank);

#endif
