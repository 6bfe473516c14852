/* SPDX-License-Identifier: Apache-2.0
 *
 * library: optional shared libraries, found at run time (PMIx, later NCCL and MPI).
 *
 * Any thread. A library stays loaded once it was opened: several of them cannot be unloaded safely.
 */
#ifndef HVD_BASE_LIBRARY_H
#define HVD_BASE_LIBRARY_H

#include <stddef.h>

#include "core/base/err.h"

/* One function to find: where its address goes. */
struct library_symbol {
    const char *name;
    void **ret;
};

/* Opens the first of names (NULL-terminated) that is there and finds every symbol in it. -ENOENT:
 * there is none of the libraries; -ENOSYS: it lacks a symbol. err has what the loader says. */
int library_open(const char *const *names, const struct library_symbol *symbols, size_t nsymbols,
                 void **ret_handle, struct err *err);

#endif
