/* SPDX-License-Identifier: Apache-2.0
 *
 * list: an intrusive doubly linked list with a head. The caller owns the nodes and the locking.
 */
#ifndef HVD_BASE_LIST_H
#define HVD_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *head)
{
    head->prev = head->next = head;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

static inline void list_append(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

/* The node points to itself afterwards, so that removing twice is harmless. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define list_entry(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define list_first(head, type, member) list_entry((head)->next, type, member)

/* The body may remove the current node. */
#define list_for_each(pos, tmp, head)                                                              \
    for (struct list *pos = (head)->next, *tmp = pos->next; pos != (head);                         \
         pos = tmp, tmp = pos->next)

#endif
