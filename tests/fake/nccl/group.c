/* SPDX-License-Identifier: Apache-2.0
 *
 * group: calls between ncclGroupStart and ncclGroupEnd become one list of tasks; a call outside is
 * a group of its own. On a nonblocking communicator the list gets onto its stream only when the
 * caller has polled often enough (FAKE_NCCL_POLLS, 2): an event that is recorded too early does not
 * cover it. See fake.h.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fake/nccl/fake.h"

static __thread struct {
    int depth, error;
    struct task *first, **end;
} group;

EXPORT int ncclGroupStart(void);
EXPORT int ncclGroupEnd(void);

static int fail(int result)
{
    if (group.error == 0)
        group.error = result;
    return result;
}

int group_launch(struct ncclComm *comm, struct task *list)
{
    int rc;
    list->number = atomic_fetch_add(&comm->queued, 1);
    if (!time_enqueue(list, &rc))
        rc = stream_enqueue(list->stream, run_tasks, skip_tasks, list);
    if (rc == NCCL_ABI_SUCCESS)
        return rc;
    atomic_fetch_sub(&comm->queued, 1);
    task_free(list);
    return rc;
}

/* Takes the tasks that have the first task's communicator and stream out of the group's list, and
 * returns them. */
static struct task *take_list(void)
{
    struct task *mine = NULL, **mine_end = &mine, **at = &group.first;
    const struct task *like = group.first;
    while (*at) {
        struct task *t = *at;
        if (t->comm != like->comm || t->stream != like->stream) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        t->next = NULL;
        *mine_end = t;
        mine_end = &t->next;
    }
    return mine;
}

static int end_group(void)
{
    int rc = group.error;
    while (rc == 0 && group.first) {
        struct task *list = take_list();
        struct ncclComm *comm = list->comm;
        bool at_once = time_call(comm) || comm->blocking;
        if (at_once) {
            rc = group_launch(comm, list);
        } else {
            home_begin(comm);
            comm->launch = list;
            comm->polls = script_number("FAKE_NCCL_POLLS", 2);
            time_delay(comm, script_number("FAKE_NCCL_LAUNCH_MS", 0));
            atomic_store(&comm->async, NCCL_ABI_IN_PROGRESS);
        }
        if (rc == 0 && !at_once && !group.first)
            rc = NCCL_ABI_IN_PROGRESS;
    }
    task_free(group.first);
    group.first = NULL;
    group.error = 0;
    return rc;
}

int ncclGroupStart(void)
{
    struct fault f = script_fault(__func__, NULL);
    if (f.sync)
        return f.sync;
    group.depth++;
    return NCCL_ABI_SUCCESS;
}

int ncclGroupEnd(void)
{
    struct fault f = script_fault(__func__, group.first ? group.first->comm : NULL);
    if (group.depth == 0)
        return NCCL_ABI_INVALID_USAGE;
    if (f.sync)
        fail(f.sync);
    if (f.async && group.first)
        group.first->fails = f.async;
    if (f.hangs && group.first)
        group.first->hangs = true;
    return --group.depth > 0 ? NCCL_ABI_SUCCESS : end_group();
}

/* Errors that a call outside a group returns at once. */
static int check(const struct task *t)
{
    struct ncclComm *c = t->comm;
    if (!c || atomic_load(&c->aborted) || atomic_load(&c->async) != NCCL_ABI_SUCCESS)
        return NCCL_ABI_INVALID_ARGUMENT;
    if (type_size(t->type) == 0 || t->peer < 0 || t->peer >= c->size)
        return NCCL_ABI_INVALID_ARGUMENT;
    if (t->op >= NCCL_ABI_OPS + MADE_OPS_MAX ||
        (t->op >= NCCL_ABI_OPS && !c->made[t->op - NCCL_ABI_OPS].used))
        return NCCL_ABI_INVALID_ARGUMENT;
    return NCCL_ABI_SUCCESS;
}

int group_add(const struct task *task)
{
    int rc = check(task);
    if (rc != NCCL_ABI_SUCCESS)
        return group.depth > 0 ? fail(rc) : rc;
    struct task *t = malloc(sizeof(*t));
    if (!t)
        return group.depth > 0 ? fail(NCCL_ABI_SYSTEM_ERROR) : NCCL_ABI_SYSTEM_ERROR;
    *t = *task;
    if (t->op >= NCCL_ABI_OPS)
        t->scalar = t->comm->made[t->op - NCCL_ABI_OPS].scalar;
    if (!group.first)
        group.end = &group.first;
    *group.end = t;
    group.end = &t->next;
    return group.depth > 0 ? NCCL_ABI_SUCCESS : end_group();
}
