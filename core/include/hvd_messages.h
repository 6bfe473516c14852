/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_messages: the part of hvd.h about messages between two ranks. Programs include hvd.h.
 */
#ifndef HVD_MESSAGES_H
#define HVD_MESSAGES_H

#ifndef HVD_H
#error "include hvd.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A message goes from one rank to another one, or to itself, as bytes with a tag. It needs no other
 * rank and no name.
 *
 * - Messages from one rank to another one with equal tags, in one set, are received in the order in
 *   which they were sent. Messages of different sets have nothing to do with each other.
 * - A send of up to 16 KiB ends when the link has taken the bytes, which may be before it is
 *   received. A larger one ends when a receive has asked for the bytes and the link has
 *   taken them, so only after the receive was submitted; and a small one, too, while the receiver
 *   keeps many (about 1 MiB of one sender, or 8000 empty ones). Do not rely on the former. The end
 *   of a send does not say that the receiver has the bytes: it may have shut down meanwhile.
 * - Receives that wait take messages in the order in which they were submitted.
 *
 * If a rank of the job is lost, all messages fail with -ECONNRESET. If a rank shuts down, those
 * that need it fail with -ESHUTDOWN; what it has sent before can still be received. A receive from
 * any rank fails with it when all other ranks have shut down. A message that waits for
 * HVD_STALL_CHECK_TIME_SECONDS is reported in the log of the rank that waits.
 *
 * In an elastic job only messages with a rank that is lost fail, with -EOWNERDEAD: sends to it,
 * receives from it, and a receive from any rank that has taken a message of it. Other receives from
 * any rank wait on. On the only rank that is left they fail, too, until hvd_commit() has returned
 * and the rank knows that it is alone. Between ranks that stay each message is received
 * exactly once, also if a third rank is lost meanwhile, or if it is sent before a step boundary
 * and received after it. What a rank has sent can be received until the job enters an epoch
 * without that rank. Large sends end when the receiver has the bytes.
 *
 * The memory of either end may be on this rank's GPU (device >= 0), whatever that of the other end
 * is:
 *
 * - Its bytes go through the host's memory, in parts. That needs no permission: the setting
 *   HVD_GPU_FALLBACK does not concern messages. A rank takes 16 MiB of page-locked memory at its
 *   first message on a GPU, for all of its sets, and no more later.
 * - A message of at least HVD_NCCL_MESSAGE_THRESHOLD bytes (0: none, the default) from GPU to GPU
 *   may go by NCCL instead, once a collective of its set has opened NCCL there; in an elastic job
 *   only a message of the world (set 0). While the
 *   launches of collectives repeat themselves in a pattern, such a message goes through the host's
 *   memory all the same; the first one mostly does. A message that goes by NCCL waits on the GPU
 *   for work that hvd has launched there before: collectives and messages by NCCL run one after the
 *   other.
 *   hvd_stats() counts such messages. After one, hvd_shutdown() waits for the other ranks as it
 *   does where sets have used NCCL.
 * - The engine reads or writes the memory after the work that is on `stream` when the message is
 *   submitted. No call waits for that work, and no other message that goes through the host.
 * - A send of any size ends like a large one: when a receive has asked for it and its bytes have
 *   been read, in an elastic job when the receiver has them. A receive has ended when the bytes are
 *   on the GPU: any stream may then use them.
 * - hvd_wait_stream() waits on the host until the message has ended, like hvd_wait(); for one that
 *   goes by NCCL, in a job of fixed size, until NCCL has taken it.
 * - -ENOMEM: there is not so much page-locked memory. If the bytes of a receive cannot be copied to
 *   the GPU, that receive fails alone. If the GPU fails, or the bytes of a send cannot be copied
 *   from it, this rank fails. */

#define HVD_ANY (-1) /* as the peer of a receive: any rank of the set */

enum hvd_direction { HVD_SEND, HVD_RECV };

/* The message that a receive has got. */
struct hvd_arrival {
    int peer; /* the sender's number in the set. -1: the sender has joined an elastic job, and this
               * rank does not know its number before its own hvd_commit() has returned */
    int64_t bytes; /* at most those of the receive */
};

struct hvd_message {
    enum hvd_direction direction;
    int peer;      /* the other rank's number in the set; of a receive also HVD_ANY */
    int tag;       /* >= 0; equal on both ranks */
    int set;       /* 0: the world */
    int device;    /* -1: data is in host memory; else the number of this rank's GPU */
    void *data;    /* of a send only read */
    int64_t bytes; /* of a receive: room for at most so many */
    /* Of a receive, filled in before hvd_wait() returns 0. NULL: not asked for. */
    struct hvd_arrival *ret_arrival;
    /* On a GPU: the CUstream whose queued work completes the data of a send and frees the memory of
     * a receive; NULL: the default stream. */
    void *stream;
};

/* Submits n messages, all or none. Since all are submitted before any is waited for, an exchange in
 * one call cannot deadlock.
 *
 * Takes: 1 to HVD_MAX_GROUP messages of size_of_message bytes each. The structs are copied.
 * Returns: 0 and n handles for hvd_wait(), hvd_poll() and hvd_release(). Does not wait.
 * Errors: -EINVAL: wrong arguments, an unknown set, or memory that is not on that GPU; -ENOTCONN
 *   before hvd_init(); -EBUSY: another thread is in hvd_join(), or the stream is being captured;
 *   -ENOMEM. Later, by hvd_wait(): -EMSGSIZE: the message was
 *   larger than the receive, and is dropped (its send ends well); -ECONNRESET, -ESHUTDOWN; in an
 *   elastic job -EOWNERDEAD: the other rank is lost, or has shut down before this epoch; -ESTALE:
 *   two boundaries have passed before the message could begin.
 * Owner: the engine uses data until hvd_wait() for the handle has returned.
 * Threads: any. */
HVD_API int hvd_exchange_sized(const struct hvd_message *messages, size_t size_of_message, size_t n,
                               hvd_handle *ret_handles);

static inline int hvd_exchange(const struct hvd_message *messages, size_t n,
                               hvd_handle *ret_handles)
{
    return hvd_exchange_sized(messages, sizeof(*messages), n, ret_handles);
}

/* One message in host memory, from its submission to its end. Returns and errors as hvd_exchange()
 * and hvd_wait(). Any thread. */
HVD_API int hvd_send(const void *data, int64_t bytes, int peer, int tag, int set);
HVD_API int hvd_recv(void *data, int64_t bytes, int peer, int tag, int set,
                     struct hvd_arrival *ret_arrival);

#ifdef __cplusplus
}
#endif

#endif
