/* SPDX-License-Identifier: Apache-2.0
 *
 * rank: one rank's process: start, output pipes, control socket, end. Owned by the agent, on its
 * loop, one thread.
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

/* Callbacks to the owner of a rank. */
struct rank_ops {
    /* Bytes of the rank's output, at most FRAME_MAX at a time. */
    void (*output)(void *arg, struct rank *rank, enum frame_stream stream, const void *data,
                   size_t n);
    /* A frame from its control socket. The callee closes the frame's descriptors. */
    void (*frame)(void *arg, struct rank *rank, struct ctl_frame *frame);
    /* exec succeeded. Not called if the command cannot be run: then only exited is. */
    void (*started)(void *arg, struct rank *rank);
    /* The rank's process has ended (rank->code); all its frames and output were handled before. */
    void (*exited)(void *arg, struct rank *rank);
    /* The process that rank_watch_hello() watches has ended. */
    void (*hello_ended)(void *arg, struct rank *rank);
    /* The rank's process group has ended, and its pipes are closed. */
    void (*closed)(void *arg, struct rank *rank);
};

/* How to start a rank. argv and cwd must outlive the rank. */
struct rank_spec {
    char *const *argv, *const *env; /* env: the whole environment */
    const char *cwd;
    int exec_ms;           /* limit for exec; a slower rank is ended */
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
    struct assignment assignment;
    pid_t pid; /* 0: not started */
    const char *program, *cwd;
    int report; /* pipe that reports exec (spawn_result); -1: reported */
    struct loop_fd report_lfd;
    struct loop_timer exec_timer;
    int exec_ms;
    bool reaped, closed;
    bool group_ended; /* the rank's process group is empty and was reaped */
    int code;         /* exit code, or -signal */
    char text[512];   /* why the rank could not be started, or the agent ended it; "": neither */
    struct rank_stream streams[FRAME_STREAMS];
    struct tail tail; /* the last bytes of stderr */
    int ctl_fd;       /* -1: closed */
    struct ctl ctl;
    struct loop_fd ctl_lfd;
    struct loop_timer again_timer; /* retries to pass descriptors that the kernel refused */
    struct loop_timer end_timer;
    uint64_t kill_at; /* when the rank's process group gets SIGKILL; 0: not set */
    /* For agent_relay.h: */
    bool hello, bye, waiting, posted;
    bool arrived;      /* a joiner that has got NUMBERS and has not said HELLO (enter) */
    bool dead;         /* known to be dead, or evicted, but not reaped yet */
    bool leaving;      /* the rank was sent LEAVE */
    int bye_status;    /* negative status of its BYE if the rank failed; 0: it did not fail */
    enum card_why why; /* why the rank said its last HELLO */
    uint64_t done;     /* operations that it had finished at its BYE */
    uint32_t was_in;   /* the epoch in its last HELLO */
    int roster_rank;   /* number of the rank in the last roster that it got, -1: none */
    uint32_t epoch;    /* epoch of that roster */
    struct loop_timer leave_timer; /* started by LEAVE: ends the rank when it expires */
    int hello_pid;                 /* pid that said HELLO: of the rank, or of a child of it */
    struct loop_fd hello_lfd;      /* reports the end of that process */
    struct rank_lifeline lifeline; /* lifeline of that process */
    struct buf card;
    struct report_item progress;
    bool progress_new;
    uint64_t counted_at; /* clock_ns() when rank_count_limits() has counted; 0: never */
};

/* Makes the control socket. *ret_child_fd is the child's end, its HVD_AGENT_FD. */
int rank_init(struct rank *rank, struct loop *loop, const struct rank_ops *ops, void *arg,
              const struct assignment *assignment, int *ret_child_fd, struct err *err);

/* Forks the process; closes child_fd. started or exited later reports whether the command runs. A
 * command that cannot be run ends the rank with code 127 (not found) or 126, and rank->text says
 * why. */
int rank_start(struct rank *rank, const struct rank_spec *spec, int child_fd, struct err *err);

/* Signals the rank's process group, unless the group has ended. */
void rank_kill(struct rank *rank, int signo);

/* SIGTERM now, SIGKILL after grace_ms, to the rank's process group. */
void rank_end(struct rank *rank, int grace_ms);

/* Call when the rank's process was reaped, with its wait status. Before that, while the process
 * group id cannot be reused, the caller sends SIGTERM to the group. */
void rank_exited(struct rank *rank, int status);

/* Stops or resumes reading the rank's output. */
void rank_pause(struct rank *rank, bool pause);

/* Handles the frames that wait in its control socket. */
void rank_read_frames(struct rank *rank);

/* Sends or queues a frame. fds NULL: without descriptors. If descriptors cannot be passed, the
 * rank is ended and rank->text says why. */
void rank_send(struct rank *rank, enum ctl_type type, const struct buf *body, struct ctl_fds *fds);

/* Of a rank that is in sets, counts the descriptors and the memory of its shared segments, and
 * looks how much memory is left, for its report of progress. Takes the last count again for some
 * seconds, because the time for it grows with the number of descriptors. */
void rank_count_limits(struct rank *rank);

/* Watches the process that said HELLO, if it is a child of the rank's process, whose own end is
 * reported anyway. */
void rank_watch_hello(struct rank *rank, int pid);

/* Is the rank in the current epoch? It said HELLO and has got a roster. False for a joiner that has
 * only got NUMBERS. */
bool rank_in_epoch(const struct rank *rank);

/* Writes how the user knows the rank: "rank 3", "rank 3 (member 7)". */
void rank_name(const struct rank *rank, char *dst, size_t size);

void rank_fini(struct rank *rank);

#endif
