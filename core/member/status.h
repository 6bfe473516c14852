/* SPDX-License-Identifier: Apache-2.0
 *
 * status: GET /v1/status: the roster for users, hvdrun status and hvd-doctor. README.md lists the
 * fields.
 */
#ifndef HVD_MEMBER_STATUS_H
#define HVD_MEMBER_STATUS_H

#include <stdint.h>

#include "core/member/roster.h"

/* A JSON text that the caller frees; NULL when memory is exhausted. now: clock_ns(). */
char *status_text(const struct roster *r, uint64_t now);

#endif
