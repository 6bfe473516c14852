/* SPDX-License-Identifier: Apache-2.0
 *
 * queue_private: the inside of a queue, for the files queue*.c. Everything here is called
 * with the queue's lock held.
 */
#ifndef HVD_ENGINE_QUEUE_PRIVATE_H
#define HVD_ENGINE_QUEUE_PRIVATE_H

#include "core/engine/queue.h"

#define QUEUE_INDEX_BITS 24 /* the low bits of a handle are the slot's index */

/* Ends the operation (err NULL: success). Its waiter may read and release the slot at once. */
void queue_end_slot(struct queue *q, struct slot *s, const struct err *err);

/* Returns -ESTALE when requests are refused now, or when one of them was made for another world. */
int queue_check_world(const struct queue *q, const struct hvd_request *requests, size_t n,
                      struct err *err);

/* The set of a request. own: see queue_submit_own(). NULL: the request cannot be made here. */
struct queue_set *queue_set_of(struct queue *q, const struct hvd_request *r, bool own,
                               struct err *err);

/* Takes a slot that is free. -ENOMEM, -ENOSPC. Below: makes it free again, and frees what it has.
 */
int queue_take_slot(struct queue *q, struct slot **ret, struct err *err);
void queue_give_slot(struct queue *q, struct slot *s);

/* Frees the memory that a slot owns, at the end. */
void queue_slot_fini(struct queue *q, struct slot *s);

/* Puts the slot into the table of operations in flight. */
void queue_names_add(struct queue *q, struct slot *s);

/* Gives n slots, linked by next, their handles, and appends them to the inbox. */
void queue_publish(struct queue *q, struct slot *first, struct slot **end, size_t n,
                   hvd_handle *ret_handles);

/* Lets requests in again and wakes callers in queue_await_open(). */
void queue_open_gate(struct queue *q);

#endif
