/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns_data: the files of diagnostics/patterns as they are, compiled in. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_PATTERNS_DATA_H
#define HVD_DIAGNOSTICS_PATTERNS_DATA_H

#include <stddef.h>

struct patterns_file {
    const char *name;
    const char *begin;
    const char *end;
};

/* In this order: specific before general, the first pattern that matches wins a line. */
extern const struct patterns_file patterns_files[];
extern const size_t patterns_nfiles;

#endif
