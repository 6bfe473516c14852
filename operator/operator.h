/* SPDX-License-Identifier: Apache-2.0
 *
 * operator: the parts of hvd-operator together: API client, leader election, driver, coordinator,
 * metrics and web page, on one loop and one thread. Called by main_hvd-operator.c.
 */
#ifndef HVD_OPERATOR_OPERATOR_H
#define HVD_OPERATOR_OPERATOR_H

#include "operator/settings.h"

/* Runs until SIGTERM or SIGINT, then releases the lease. */
int operator_run(const struct settings *settings, struct err *err);

#endif
