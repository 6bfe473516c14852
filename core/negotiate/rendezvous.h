/* SPDX-License-Identifier: Apache-2.0
 *
 * rendezvous: some ranks of a world exchange bytes over its tree (negotiate.h has its shape), and
 * no other rank has to call anything. A point of rendezvous has a name, a round and a list of
 * ranks. Each of these ranks enters it with bytes of its own, and gets those of all when all have
 * entered.
 *
 * What a rank enters with travels up to rank 0. Rank 0 answers all ranks that have entered: when
 * the last one has, when the time limit of the first one is over, or when one of the list's ranks
 * has shut down. Then the point is gone; later calls begin it anew. Points do not wait for each
 * other.
 *
 * Pure, as negotiate.h: calls in, messages out through callbacks; under the progress lock.
 */
#ifndef HVD_NEGOTIATE_RENDEZVOUS_H
#define HVD_NEGOTIATE_RENDEZVOUS_H

#include <stdint.h>

#include <hvd.h>

#include "core/base/buf.h"
#include "core/base/err.h"

#define RENDEZVOUS_BYTES_MAX 65535 /* with which one rank can enter */

struct rendezvous;

struct rendezvous_point {
    const char *name; /* 1 to HVD_MAX_NAME bytes */
    uint8_t round;
    const int *ranks; /* [n], this rank is one of them */
    int n;
};

/* The end of a rendezvous. */
struct rendezvous_end {
    /* Code 0: all ranks have entered. -ETIMEDOUT: err names the ranks that have not. -ESHUTDOWN:
     * err names a rank that has shut down. */
    struct err err;
    /* If all have entered: */
    /* The number of this rendezvous among those that have ended well on rank 0, and on ranks 0 of
     * earlier epochs. The same on all. */
    uint32_t serial;
    int n;
    struct rendezvous_bytes {
        const uint8_t *data;
        size_t len;
    } * of; /* [n] in the order of the list */
};

/* Must not call rendezvous. */
struct rendezvous_ops {
    /* Sends a message to a child (its rank) or to the parent (NEGOTIATE_PARENT). */
    int (*send)(void *ctx, int to, const struct buf *msg);
    /* The rendezvous that this caller has entered ends. `end` is valid during the call. */
    void (*end)(void *ctx, void *caller, const struct rendezvous_end *end);
};

/* parent: a rank; -1 on rank 0. children: ranks. serial: rank 0 counts on from here (the highest
 * number that is known from earlier epochs). */
int rendezvous_create(int size, int rank, int parent, const int *children, int nchildren,
                      uint32_t serial, const struct rendezvous_ops *ops, void *ctx,
                      struct rendezvous **ret, struct err *err);

/* Ends without calling ops.end. NULL is allowed. */
void rendezvous_destroy(struct rendezvous *v);

/* This rank enters. bytes: at most RENDEZVOUS_BYTES_MAX. limit: ns that the first rank waits for
 * the last one. caller: for ops.end, not NULL, which may be called at once. -EBUSY: this rank has
 * entered this point already. -ENOMEM. */
int rendezvous_enter(struct rendezvous *v, const struct rendezvous_point *point, const void *bytes,
                     size_t len, uint64_t limit, uint64_t now, void *caller, struct err *err);

/* The caller does not want to hear of the end any more. The others are not told. */
void rendezvous_forget(struct rendezvous *v, const void *caller);

/* Processes a message from a child (its rank) or the parent (NEGOTIATE_PARENT). The bytes are
 * untrusted. -EPROTO, -ENOMEM: the state is undefined. */
int rendezvous_recv(struct rendezvous *v, int from, const void *msg, size_t len, uint64_t now,
                    struct err *err);

/* Ends what is over; returns when to call it next (UINT64_MAX: never). */
uint64_t rendezvous_tick(struct rendezvous *v, uint64_t now);

/* A rank has shut down: this rank was told after all messages that came before that. */
void rendezvous_departed(struct rendezvous *v, int rank);

/* -ENOMEM: rank 0 could not answer. */
int rendezvous_failed(const struct rendezvous *v);

#endif
