/* SPDX-License-Identifier: Apache-2.0
 *
 * plane_service: hvd-plane's connection to hvd-operator. Connects to the operator's socket, serves
 * agents with a plane (plane.h) from the operator's message `config` until the connection ends, and
 * connects again. Called by main_hvd-plane.c, on one loop, one thread.
 */
#ifndef HVD_OPERATOR_COORDINATOR_PLANE_SERVICE_H
#define HVD_OPERATOR_COORDINATOR_PLANE_SERVICE_H

#include "core/base/err.h"
#include "core/base/loop.h"

struct plane_service;

struct plane_service_config {
    struct loop *loop;
    const char *socket;  /* the operator's Unix socket; borrowed */
    const char *address; /* ADDRESS:PORT to listen on for agents */
};

/* -EINVAL: the address is malformed. A socket that is not there yet is no error. */
int plane_service_open(struct plane_service **ret, const struct plane_service_config *config,
                       struct err *err);

/* NULL is fine. */
void plane_service_close(struct plane_service *s);

#endif
