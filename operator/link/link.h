/* SPDX-License-Identifier: Apache-2.0
 *
 * link: one end of the Unix stream socket between hvd-operator and hvd-plane. A frame is a u32
 * length, little endian, and so many bytes of JSON: an object whose "type" is a text. Used by
 * coordination.c and plane_service.c, each on its loop, one thread.
 *
 * The other end is not trusted. A frame has at most LINK_FRAME_MAX bytes, and reading pauses after
 * each LINK_READ bytes, so that a flood takes a bounded part of the owner's time. Sending never
 * waits: messages are queued, and sent from the loop, so that those of one turn arrive together:
 * the plane decides on pods that are deleted together at once. The link breaks if the other end
 * takes nothing for 10 s, or if more than LINK_QUEUE_MAX bytes are queued.
 */
#ifndef HVD_OPERATOR_LINK_LINK_H
#define HVD_OPERATOR_LINK_LINK_H

#include <jansson.h>

#include "core/base/err.h"
#include "core/base/loop.h"

#define LINK_FRAME_MAX (1u << 20)
#define LINK_READ      (64u << 10)
#define LINK_QUEUE_MAX (64u << 20) /* jobs and pods of the largest cluster take a tenth of it */

struct link;

struct link_config {
    struct loop *loop;
    int fd; /* owned by the link from now on, also on failure */
    /* Handles a message; borrows it. A negative result breaks the link: err says why. */
    int (*message)(void *arg, const char *type, json_t *message, struct err *err);
    /* The link is broken; called once, from the loop. The owner closes the link. */
    void (*broken)(void *arg, const char *why);
    void *arg;
};

int link_open(struct link **ret, const struct link_config *config, struct err *err);

/* Queues a message and takes the reference to it. -EMSGSIZE: it is longer than LINK_FRAME_MAX and
 * was dropped. A message that is NULL (no memory) or for which the queue has no room breaks the
 * link. After that messages are dropped. */
int link_send(struct link *l, json_t *message);

/* Sends what is queued at once, as far as the socket takes it; the loop does that later, after
 * other events. */
void link_push(struct link *l);

/* Drops what is still queued. May be called from within message() and broken(). NULL is fine. */
void link_close(struct link *l);

#endif
