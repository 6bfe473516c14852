/* SPDX-License-Identifier: Apache-2.0
 *
 * operator: hvd-operator as a whole: the API client, the election, the driver, the pages for
 * monitoring, on one loop and one thread. Called by main_hvd-operator.c.
 */
#ifndef HVD_OPERATOR_OPERATOR_H
#define HVD_OPERATOR_OPERATOR_H

#include "operator/settings.h"

/* Until SIGTERM or SIGINT; then it frees the lease. */
int operator_run(const struct settings *settings, struct err *err);

#endif
