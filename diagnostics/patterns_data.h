/* SPDX-License-Identifier: Apache-2.0
 *
 * patterns_data: the files of diagnostics/patterns, compiled in unchanged. Any thread.
 */
#ifndef HVD_DIAGNOSTICS_PATTERNS_DATA_H
#define HVD_DIAGNOSTICS_PATTERNS_DATA_H

#include <stddef.h>

struct patterns_file {
    const char *name;
    const char *begin;
    const char *end;
};

/* Specific patterns come before general ones: the first pattern that matches gets the line. */
extern const struct patterns_file patterns_files[];
extern const size_t patterns_nfiles;

#endif
