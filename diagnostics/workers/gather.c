/* SPDX-License-Identifier: Apache-2.0
 *
 * gather: concatenates the texts of all workers. See workers.h.
 */
#include <errno.h>

#include "core/include/hvd.h"
#include "diagnostics/workers/workers.h"

int workers_gather(const char *name, const struct buf *mine, struct buf *all, struct err *err)
{
    int64_t shape[1] = {(int64_t)mine->len};
    struct hvd_request q = {.kind = HVD_ALLGATHER,
                            .name = name,
                            .input = mine->data,
                            .dtype = HVD_UINT8,
                            .ndim = 1,
                            .shape = shape,
                            .device = -1};
    struct hvd_result result;
    hvd_handle handle;
    int rc = mine->failed ? -ENOMEM : hvd_submit(&q, 1, &handle);
    if (rc < 0)
        return err_set(err, -rc, "%s: %s", name, mine->failed ? "no memory" : hvd_error());
    rc = hvd_wait(handle);
    if (rc == 0)
        rc = hvd_result(handle, &result);
    if (rc == 0 && result.shape[0] > 0)
        buf_put(all, result.data, (size_t)result.shape[0]);
    hvd_release(handle);
    return rc < 0 ? err_set(err, -rc, "%s: %s", name, hvd_error()) : 0;
}
