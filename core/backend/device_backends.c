/* SPDX-License-Identifier: Apache-2.0
 *
 * device_backends: the ways of device.h as rows of the table of back ends, so that users can name
 * them and ask whether they are available.
 */
#include <stdio.h>

#include "core/backend/backend.h"
#include "core/backend/cuda_api.h"
#include "core/backend/nccl_api.h"

/* Looks for the driver, touches no GPU. */
static int staged_probe(char *ret_text, size_t size, struct err *err)
{
    const struct cuda_api *cuda;
    int rc = cuda_api_open(&cuda, err);
    if (rc == 0)
        snprintf(ret_text, size, "CUDA");
    return rc;
}

static int nccl_probe(char *ret_text, size_t size, struct err *err)
{
    const struct nccl_api *nccl;
    int rc = staged_probe(ret_text, size, err);
    if (rc == 0)
        rc = nccl_api_load(&nccl, err);
    if (rc == 0)
        snprintf(ret_text, size, "NCCL %s", nccl->text);
    return rc;
}

const struct backend_ops nccl_backend = {.name = "nccl", .way = DEVICE_NCCL, .probe = nccl_probe};
const struct backend_ops staged_backend = {
    .name = "staged", .way = DEVICE_STAGED, .probe = staged_probe};
