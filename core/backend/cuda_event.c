/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_event: the pool of events, see cuda.h.
 */
#include <stdlib.h>

#include "core/backend/cuda.h"

/* Makes room in the pool for one more event, so that returning it cannot fail. */
static int make_room(struct cuda_device *d, struct err *err)
{
    struct CUevent_st **grown = realloc(d->free, (d->events + 1) * sizeof(*grown));
    if (!grown)
        return err_set(err, ENOMEM, "no memory for an event of GPU %d", d->ordinal);
    d->free = grown;
    return 0;
}

int cuda_event_get(struct cuda_device *d, struct CUevent_st **ret, struct err *err)
{
    struct CUevent_st *event;
    if (d->nfree > 0) {
        *ret = d->free[--d->nfree];
        return 0;
    }
    int rc = make_room(d, err);
    if (rc == 0)
        rc = cuda_check(d, d->api->event_create(&event, CUDA_FLAG_EVENT_DISABLE_TIMING),
                        "cuEventCreate", err);
    if (rc < 0)
        return rc;
    d->events++;
    *ret = event;
    return 0;
}

void cuda_event_put(struct cuda_device *d, struct CUevent_st *event)
{
    if (event)
        d->free[d->nfree++] = event;
}

int cuda_event_record(struct cuda_device *d, struct CUevent_st *event, struct CUstream_st *stream,
                      struct err *err)
{
    return cuda_check(d, d->api->event_record(event, stream), "cuEventRecord", err);
}

int cuda_event_done(struct cuda_device *d, struct CUevent_st *event, struct err *err)
{
    unsigned code = d->api->event_query(event);
    return code == CUDA_NOT_READY ? 1 : cuda_check(d, code, "cuEventQuery", err);
}

int cuda_stream_wait(struct cuda_device *d, struct CUstream_st *stream, struct CUevent_st *event,
                     struct err *err)
{
    return cuda_check(d, d->api->stream_wait(stream, event, 0), "cuStreamWaitEvent", err);
}
