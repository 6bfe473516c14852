/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce_scalar: the kernels for any processor: what the compiler makes of them by default.
 */
#define KERNELS      reduce_scalar_kernels
#define KERNELS_NAME "scalar"

#include "core/coll/reduce_template.h"
