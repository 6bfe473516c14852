/* SPDX-License-Identifier: Apache-2.0
 *
 * request: whether what a caller asks for makes sense, before anything is done about it. Pure.
 */
#ifndef HVD_ENGINE_REQUEST_H
#define HVD_ENGINE_REQUEST_H

#include <stddef.h>

#include <hvd.h>

#include "core/base/err.h"
#include "core/negotiate/negotiate.h"

/* What follows from a request in a world of size ranks. */
struct request_facts {
    struct signature sig; /* group fields are 0 */
    size_t count;         /* elements of the input (broadcast: of the tensor) */
    size_t inner;         /* elements of one row of dimension 0 */
    size_t out_count;     /* elements that the output has room for; 0: the engine allocates it */
};

/* -EINVAL or -ENOTSUP with a text that names the tensor (name: what it is called here). */
int request_check(const struct hvd_request *request, const char *name, int rank, int size,
                  struct request_facts *ret, struct err *err);

/* Rows of dimension 0 that rank gets in a reducescatter. */
int64_t request_rows(int64_t rows, int rank, int size);

#endif
