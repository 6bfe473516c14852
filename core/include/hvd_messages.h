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
 * Memory is the host's so far (device -1), and the job is not elastic (-ENOTSUP). */

#define HVD_ANY (-1) /* as the peer of a receive: any rank of the set */

enum hvd_direction { HVD_SEND, HVD_RECV };

/* The message that a receive has got. */
struct hvd_arrival {
    int peer;      /* who has sent it; its number in the set */
    int64_t bytes; /* at most those of the receive */
};

struct hvd_message {
    enum hvd_direction direction;
    int peer;      /* the other rank's number in the set; of a receive also HVD_ANY */
    int tag;       /* >= 0; equal on both ranks */
    int set;       /* 0: the world */
    int device;    /* -1: data is in host memory */
    void *data;    /* of a send only read */
    int64_t bytes; /* of a receive: room for at most so many */
    /* Of a receive, filled in before hvd_wait() returns 0. NULL: not asked for. */
    struct hvd_arrival *ret_arrival;
};

/* Submits n messages, all or none. Since all are submitted before any is waited for, an exchange in
 * one call cannot deadlock.
 *
 * Takes: 1 to HVD_MAX_GROUP messages of size_of_message bytes each. The structs are copied.
 * Returns: 0 and n handles for hvd_wait(), hvd_poll() and hvd_release(). Does not wait.
 * Errors: -EINVAL: wrong arguments, or an unknown set; -ENOTCONN before hvd_init(); -EBUSY: another
 *   thread is in hvd_join(); -ENOTSUP; -ENOMEM. Later, by hvd_wait(): -EMSGSIZE: the message was
 *   larger than the receive, and is dropped (its send ends well); -ECONNRESET, -ESHUTDOWN.
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
