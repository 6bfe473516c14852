/* SPDX-License-Identifier: Apache-2.0
 *
 * api_messages: the functions of hvd_messages.h.
 */
#include <hvd.h>

#include <stddef.h>

#include "core/engine/api_private.h"
#include "core/engine/engine.h"
#include "core/engine/life.h"
#include "core/engine/messages.h"

int hvd_exchange_sized(const struct hvd_message *messages, size_t size, size_t n,
                       hvd_handle *ret_handles)
{
    struct err *err = api_error();
    if (size != sizeof(*messages))
        return err_set(err, EINVAL, "a message of %zu bytes: this version of hvd has %zu", size,
                       sizeof(*messages));
    if (!messages || !ret_handles)
        return err_set(err, EINVAL, "%s is NULL", messages ? "ret_handles" : "messages");
    struct engine *e = life_begin(NULL, err);
    if (!e)
        return err->code;
    int rc = queue_submit_messages(e->queue, messages, n, ret_handles, err);
    if (rc == 0)
        messages_submitted(e, messages[0].set);
    life_end();
    return rc;
}

static int run(const struct hvd_message *m)
{
    struct engine *e = life_begin(NULL, api_error());
    if (!e)
        return api_error()->code;
    int rc = messages_run(e, m, api_error());
    life_end();
    return rc;
}

int hvd_send(const void *data, int64_t bytes, int peer, int tag, int set)
{
    const struct hvd_message m = {.direction = HVD_SEND,
                                  .peer = peer,
                                  .tag = tag,
                                  .set = set,
                                  .device = -1,
                                  .data = (void *)(uintptr_t)data,
                                  .bytes = bytes};
    return run(&m);
}

int hvd_recv(void *data, int64_t bytes, int peer, int tag, int set, struct hvd_arrival *ret_arrival)
{
    const struct hvd_message m = {.direction = HVD_RECV,
                                  .peer = peer,
                                  .tag = tag,
                                  .set = set,
                                  .device = -1,
                                  .data = data,
                                  .bytes = bytes,
                                  .ret_arrival = ret_arrival};
    return run(&m);
}
