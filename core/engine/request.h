/* SPDX-License-Identifier: Apache-2.0
 *
 * request: checks a caller's request before anything is done about it. Pure.
 */
#ifndef HVD_ENGINE_REQUEST_H
#define HVD_ENGINE_REQUEST_H

#include <stddef.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/negotiate/negotiate.h"

/* What a request means in a world of size ranks. */
struct request_facts {
    struct signature sig; /* its group fields are 0 */
    size_t count;         /* elements of the input (broadcast: of the tensor) */
    size_t inner;         /* elements of one row of dimension 0 */
    /* Capacity of the output in elements; 0: the engine allocates the output. */
    size_t out_count;
};

/* Fills ret. name: the tensor's name, with which error texts begin. -EINVAL, -ENOTSUP. */
int request_check(const struct hvd_request *request, const char *name, int rank, int size,
                  struct request_facts *ret, struct err *err);

/* Copies n requests that lie `stride` bytes apart. Only the first `known` bytes of each have a
 * meaning for the caller; the rest becomes 0. The caller frees *ret. -EINVAL: a request has bytes
 * that are not 0 and that this library does not know. -ENOMEM. */
int request_copy(const void *from, size_t stride, size_t known, size_t n, struct hvd_request **ret,
                 struct err *err);

/* Rows of dimension 0 that the rank gets in a reducescatter. */
int64_t request_rows(int64_t rows, int rank, int size);

#endif
