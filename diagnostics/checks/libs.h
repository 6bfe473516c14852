/* SPDX-License-Identifier: Apache-2.0
 *
 * libs: reads the lists of copies that hvd-probe writes ("lib.0.path", "lib.0.version" ...), for
 * the checks of NCCL, MPI, hwloc, CUDA. Strings are the answer's.
 */
#ifndef HVD_DIAGNOSTICS_CHECKS_LIBS_H
#define HVD_DIAGNOSTICS_CHECKS_LIBS_H

#include <stdbool.h>
#include <stddef.h>

#include "diagnostics/answer.h"

/* The version that the copy reported, else the one in its file; NULL: unknown. */
const char *libs_version(const struct answer *a, int i);

/* Returns whether the loader, or its configuration, finds copy i. It does not find copies in Python
 * packages, conda and other folders. */
bool libs_reachable(const struct answer *a, int i);

/* The leading number of a version, 0 without one. */
int libs_major(const char *version);

/* "2.27.7 in /usr/lib/libnccl.so.2, 2.21.5 in /opt/...": every copy, cut to size. Returns dst. */
const char *libs_list(const struct answer *a, char *dst, size_t size);

/* How many distinct versions there are. majors: compares the leading numbers only. */
int libs_distinct(const struct answer *a, bool majors, bool only_reachable);

/* Returns whether there is no copy: the loader reported that there is no such file, as opposed to a
 * broken one. */
bool libs_absent(const struct answer *a);

/* Why opening the loader's choice failed: "crashed ...", "timeout", the loader's message; NULL:
 * it opened, or there is none. */
const char *libs_trouble(const struct answer *a);

#endif
