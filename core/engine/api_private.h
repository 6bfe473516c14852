/* SPDX-License-Identifier: Apache-2.0
 *
 * api_private: what the files with the functions of hvd.h share.
 */
#ifndef HVD_ENGINE_API_PRIVATE_H
#define HVD_ENGINE_API_PRIVATE_H

#include "core/base/err.h"

/* The calling thread's last error, for hvd_error(). */
struct err *api_error(void);

#endif
